"""How the page looks: one style sheet, light and dark, for a phone, a desk and paper."""

STYLE = """
:root { color-scheme: light dark;
  --paper: #faf8f5; --card: #ffffff; --ink: #211d1a; --soft: #665f57; --grid: #e7e2da;
  --line: #b9b1a6; --shade: #f4efe7; --accent: #a8321c; --bar: #a79f94;
  --s0: #b7381d; --s1: #1663a6; --s2: #0b7560; --s3: #93408a; --s4: #8a5f00; --s5: #2a7aa6;
  --s6: #6b655d; --s7: #4b5a8f;
  --q0: #5f9fce; --q1: #2f7ab8; --q2: #17568f; --q3: #0b3157; --inside: #ffffff; }
@media screen and (prefers-color-scheme: dark) { :root {
  --paper: #16130f; --card: #1f1b17; --ink: #efe9e1; --soft: #aaa196; --grid: #342e28;
  --line: #6d645a; --shade: #27221d; --accent: #ff9478; --bar: #6f665c;
  --s0: #ff8a6a; --s1: #74b6f2; --s2: #4fcdb0; --s3: #e39bd8; --s4: #e5b54a; --s5: #8fd0ee;
  --s6: #a9a196; --s7: #a6b4f0;
  --q0: #4380b3; --q1: #6ba8d9; --q2: #a3cef0; --q3: #e2f0fc; --inside: #16130f; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans",
  Arial, sans-serif; }
main, header, footer { max-width: 824px; margin: 0 auto; padding: 0 16px; }
header { padding-top: 40px; }
h1 { font-size: 30px; line-height: 1.2; margin: 0 0 6px; letter-spacing: -0.01em; }
h2 { font-size: 21px; line-height: 1.3; margin: 0 0 8px; }
h3 { font-size: 15px; line-height: 1.4; margin: 22px 0 10px; }
p { margin: 0 0 12px; max-width: 68ch; }
a { color: var(--accent); }
a:focus-visible, summary:focus-visible, .wide-table:focus-visible { border-radius: 3px;
  outline: 2px solid var(--accent); outline-offset: 2px; }
.soft, .source, figcaption { color: var(--soft); font-size: 14px; }
.facts { display: grid; grid-template-columns: max-content 1fr; gap: 2px 16px; margin: 16px 0 0;
  font-size: 14px; }
.facts dt { color: var(--soft); } .facts dd { margin: 0; }
nav ul { list-style: none; display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 22px 0 0;
  padding: 0; font-size: 14px; }
.tiles { display: grid; grid-template-columns: repeat(3, 1fr); gap: 12px;
  margin: 24px 0 8px; padding: 0; list-style: none; }
.tiles li { background: var(--card); border: 1px solid var(--grid); border-radius: 10px;
  padding: 14px 16px 12px; display: flex; flex-direction: column; }
.tiles b { font-size: 27px; line-height: 1.15; font-weight: 650; letter-spacing: -0.01em;
  font-variant-numeric: tabular-nums; }
.tiles b small { font-size: 15px; font-weight: 600; letter-spacing: 0; }
.tiles span { color: var(--soft); font-size: 13px; line-height: 1.4; margin-top: 5px; }
section { background: var(--card); border: 1px solid var(--grid); border-radius: 12px;
  padding: 24px 31px 20px; margin: 18px 0; }
figure { margin: 0 0 8px; }
.missing { border-left: 3px solid var(--line); padding: 2px 0 2px 12px; color: var(--soft); }
.plot { display: block; width: 100%; height: auto; overflow: visible; font-size: 12px;
  font-variant-numeric: tabular-nums; }
.plot.narrow { display: none; max-width: 460px; margin: 0 auto; }
.plot text { fill: var(--ink); }
.plot .tick, .plot .note { fill: var(--soft); }
.plot .halo { paint-order: stroke; stroke: var(--card); stroke-width: 3px; }
.plot .title { fill: var(--soft); }
.plot .heading { font-weight: 600; }
.plot .name { fill: currentColor; font-weight: 600; }
.plot .value { font-weight: 600; }
.plot .grid { stroke: var(--grid); } .plot .axis { stroke: var(--line); }
.plot .track { stroke: var(--grid); } .plot .shade { fill: var(--shade); }
.plot .fill { fill: var(--s0); fill-opacity: 0.1; stroke: none; }
.plot .rule { stroke: var(--soft); stroke-dasharray: 2 3; }
.plot .curve { fill: none; stroke: currentColor; stroke-width: 2; stroke-linejoin: round; }
.plot .dashed { color: var(--soft); } .plot .curve.dashed { stroke-dasharray: 5 4; }
.plot .leader { fill: none; stroke: currentColor; stroke-width: 0.75; opacity: 0.6; }
.plot .whisker { stroke: currentColor; stroke-width: 1.25; opacity: 0.75; }
.plot .whisker.over { color: var(--ink); }
.plot .circle, .plot .dot { fill: currentColor; stroke: var(--card); stroke-width: 1; }
.plot .ring { fill: var(--card); stroke: currentColor; stroke-width: 2; }
.plot .cross { fill: none; stroke: currentColor; stroke-width: 2.25; }
.plot .bar { fill: currentColor; } .plot .limit { stroke: var(--ink); stroke-width: 2; }
.plot .room { fill: var(--shade); }
.plot .inside { fill: var(--inside); }
.s0 { color: var(--s0); } .s1 { color: var(--s1); } .s2 { color: var(--s2); }
.s3 { color: var(--s3); } .s4 { color: var(--s4); } .s5 { color: var(--s5); }
.s6 { color: var(--s6); } .s7 { color: var(--s7); } .pale { color: var(--bar); }
.q0 { color: var(--q0); } .q1 { color: var(--q1); } .q2 { color: var(--q2); }
.q3 { color: var(--q3); }
details { margin: 4px 0; } summary { cursor: pointer; font-size: 14px; color: var(--accent); }
.wide-table { overflow-x: auto; margin: 8px 0 14px; }
table { border-collapse: collapse; font-size: 13px; line-height: 1.4; min-width: 100%;
  font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--soft); padding: 0 0 6px; }
th, td { text-align: left; vertical-align: baseline; padding: 5px 14px 5px 0;
  border-bottom: 1px solid var(--grid); }
th { font-weight: 600; } thead th { color: var(--soft); font-weight: 500; }
th.number, td.number { text-align: right; white-space: nowrap; }
tbody th { font-weight: 500; white-space: nowrap; }
td.long, tbody th.long { min-width: 240px; white-space: normal; overflow-wrap: break-word; }
.strip { display: block; width: 84px; height: 12px; color: var(--s1); }
.strip line { stroke: currentColor; stroke-width: 2; } .strip .base { stroke: var(--grid); }
.strip circle { fill: currentColor; }
code { font: 0.92em ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
footer { padding-bottom: 48px; }
@media (max-width: 700px) {
  .plot.narrow { display: block; } .plot.wide { display: none; }
  section { padding: 18px 14px 14px; margin: 14px -2px; } header { padding-top: 24px; }
  h1 { font-size: 25px; } .tiles { grid-template-columns: 1fr 1fr; gap: 10px; }
  .tiles li { padding: 11px 12px; } .tiles b { font-size: 22px; } }
@media print {
  :root { --paper: #fff; --card: #fff; --grid: #ddd; --shade: #f3f0ea; }
  body { font-size: 11pt; } nav { display: none; } header { padding-top: 0; }
  .plot.wide { display: block; } .plot.narrow { display: none; }
  section { border: 0; padding: 0; margin: 0 0 18pt; }
  figure, tr, .tiles li { break-inside: avoid; }
  .wide-table { overflow: visible; } table { font-size: 8pt; } #all { display: none; }
  th.number { white-space: normal; } th, td { padding-right: 8px; }
  h2, h3 { break-after: avoid; } summary { color: var(--soft); list-style: none; }
  details::details-content { content-visibility: visible; block-size: auto; } }
"""
