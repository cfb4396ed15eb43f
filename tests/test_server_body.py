"""The JSON reader of classify requests against the standard library's, and its refusals."""

import json
import random

import pytest

from server.body import ClassifyBody, TextItem, read_json, read_plain, read_text
from server.errors import ClientError

LIMIT = 8

REFUSED = [
    (b"", "invalid_json"), (b"nul", "invalid_json"), (b"[]", "invalid_json"),
    (b'"a"', "invalid_json"), (b"{", "invalid_json"), (b'{"text"', "invalid_json"),
    (b'{"text":"a"', "invalid_json"), (b'{"text":"a', "invalid_json"),
    (b'{"text":"a"}x', "invalid_json"), (b'{"text":"a",}', "invalid_json"),
    (b'{"text" "a"}', "invalid_json"), (b"{'text':'a'}", "invalid_json"),
    (b'{"text":"a\x00"}', "invalid_json"), (b'{"text":"a\n"}', "invalid_json"),
    (b'{"text":"\\x"}', "invalid_json"), (b'{"text":tru}', "invalid_json"),
    (b"\xef\xbb\xbf" + b'{"text":"a"}', "invalid_json"), (b'{"texts":["a"', "invalid_json"),
    (b'{"texts":["a";"b"]}', "invalid_json"), (b"\x00", "invalid_json"),
    (b'{"text":"\xff"}', "invalid_utf8"), (b'{"text":"\xed\xa0\x80"}', "invalid_utf8"),
    (b'{"text":"\\ud800"}', "invalid_utf8"), (b'{"text":"\\udc00\\ud800"}', "invalid_utf8"),
    (b'{"\\ud800":1}', "invalid_utf8"), (b'{"texts":["a","\\udfff"]}', "invalid_utf8"),
    (b"{}", "invalid_field"), (b'{"text":null}', "invalid_field"), (b'{"text":1}', "invalid_field"),
    (b'{"text":["a"]}', "invalid_field"), (b'{"text":NaN}', "invalid_field"),
    (b'{"text":Infinity}', "invalid_field"), (b'{"text":"a","text":"b"}', "invalid_field"),
    (b'{"text":"a","txt":"b"}', "invalid_field"), (b'{"texts":[]}', "invalid_field"),
    (b'{"texts":"a"}', "invalid_field"), (b'{"texts":[1]}', "invalid_field"),
    (b'{"texts":[["a"]]}', "invalid_field"), (b'{"texts":[["a","b","c"]]}', "invalid_field"),
    (b'{"texts":[{}]}', "invalid_field"), (b'{"texts":[{"logits":true}]}', "invalid_field"),
    (b'{"texts":["a"],"text":"b"}', "invalid_field"),
    (b'{"texts":["a"],"text_pair":"b"}', "invalid_field"),
    (b'{"texts":["a"],"user_id":1}', "invalid_field"),
    (b'{"text":"a","logits":1}', "invalid_field"), (b'{"text":"a","logits":"x"}', "invalid_field"),
    (b'{"text":"a","top_k":0}', "invalid_field"), (b'{"text":"a","top_k":1.0}', "invalid_field"),
    (b'{"text":"a","top_k":-1}', "invalid_field"), (b'{"text":"a","user_id":-1}', "invalid_field"),
    (b'{"text":"a","user_id":1e3}', "invalid_field"),
    (b'{"text":"a","user_id":18446744073709551616}', "invalid_field"),
    (b'{"text":"a","user_id":' + b"9" * 5000 + b"}", "invalid_field"),
    (b'{"text":"a","user_id":"' + b"x" * 129 + b'"}', "invalid_field"),
    (b'{"text":"a","user_id":true}', "invalid_field"),
    (b'{"text":"a","text_pair":0}', "invalid_field"),
    (b'{"texts":' + b"[" * 100000, "invalid_field"),
]


@pytest.mark.parametrize("body,code", REFUSED, ids=range(len(REFUSED)))
def test_read_json_broken_body_is_refused_with_its_code(body, code):
    with pytest.raises(ClientError) as refused:
        read_json(body, LIMIT)
    assert (refused.value.status, refused.value.code) == (400, code)
    assert len(refused.value.message) < 200


def test_read_json_too_many_texts_is_too_large():
    with pytest.raises(ClientError) as refused:
        read_json(json.dumps({"texts": ["a"] * (LIMIT + 1)}).encode(), LIMIT)
    assert (refused.value.status, refused.value.code) == (413, "too_large")
    assert len(read_json(json.dumps({"texts": ["a"] * LIMIT}).encode(), LIMIT).texts) == LIMIT


def test_read_json_nulls_read_as_not_sent():
    body = b'{"text": "a", "text_pair": null, "user_id": null, "logits": null, "top_k": null,' \
           b' "texts": null}'
    assert read_json(body, LIMIT) == ClassifyBody([TextItem("a", None, None)], False, False, None)


def test_read_json_empty_pair_is_no_pair():
    assert read_json(b'{"text": "", "text_pair": ""}', LIMIT).texts == [TextItem("", None, None)]
    assert read_json(b'{"texts": [["a", ""], ["b", null]]}', LIMIT).texts == [
        TextItem("a", None, None), TextItem("b", None, None)]


def test_read_json_surrogate_pair_is_one_character():
    assert read_json(b'{"text": "\\ud83d\\ude00"}', LIMIT).texts[0].text == "\U0001f600"


def test_read_json_random_requests_equal_the_standard_reader():
    rng = random.Random(7)
    texts = ["", "a", "Zoë \U0001f600", '"\\/\b\f\n\r\t', "\u2028\ufeff", "x" * 300]
    for _ in range(500):
        def item(rng=rng):
            found = {"text": rng.choice(texts)}
            if rng.random() < 0.5:
                found["text_pair"] = rng.choice(texts[1:])
            if rng.random() < 0.5:
                found["user_id"] = rng.choice([0, 7, 2**64 - 1, "u", "é" * 128])
            return found
        options = {"logits": rng.random() < 0.5, "top_k": rng.choice([1, 3])}
        many = rng.random() < 0.5
        sent = {"texts": [item() for _ in range(rng.randint(1, LIMIT))]} if many else item()
        sent.update(options)
        body = json.dumps(sent, ensure_ascii=rng.random() < 0.5,
                          indent=rng.choice([None, 1, "\t"])).encode()
        read = read_json(body, LIMIT)
        wanted = json.loads(body)
        items = wanted["texts"] if many else [wanted]
        assert read == ClassifyBody(
            [TextItem(i["text"], i.get("text_pair"), i.get("user_id")) for i in items],
            many, wanted["logits"], wanted["top_k"])


def test_read_json_every_cut_of_a_request_is_refused():
    body = '{"texts": ["é", ["a", "b"], {"text": "c", "user_id": 12}], "top_k": 2}'.encode()
    read_json(body, LIMIT)
    for cut in range(len(body)):
        with pytest.raises(ClientError):
            read_json(body[:cut], LIMIT)


def test_read_json_short_form_equals_the_reader():
    for text in ("", "a b", "é", "}", '{"text": "'):
        quoted = json.dumps(text, ensure_ascii=False)
        for form in ('{"text": %s}', '{"text":%s}', '{ "text":%s}', ' {"text":%s} '):
            assert read_json((form % quoted).encode(), LIMIT).texts == [TextItem(text, None, None)]


def test_read_text_body_is_the_text():
    assert read_text("é\n".encode()).texts == [TextItem("é\n", None, None)]
    assert read_text(b"").texts == [TextItem("", None, None)]
    with pytest.raises(ClientError) as refused:
        read_text(b"a\xff")
    assert refused.value.code == "invalid_utf8"


@pytest.mark.parametrize("body,code", REFUSED, ids=range(len(REFUSED)))
def test_read_plain_broken_body_is_left_to_the_reader(body, code):
    assert read_plain(body) is None


def test_read_plain_gives_the_text_that_the_reader_gives_or_nothing():
    texts = ["", "a", "two words", "quo\"te", "back\\slash", "\u00a3", "\U0001f600", "x" * 9000]
    found = 0
    for text in texts:
        for is_ascii in (True, False):
            for form in ('{"text": %s}', '{"text":%s}', ' {"text": %s}', '{"text": %s }',
                         '{"text": %s, "user_id": 1}', '{"text": %s}\n'):
                body = (form % json.dumps(text, ensure_ascii=is_ascii)).encode()
                plain = read_plain(body)
                assert plain is None or read_json(body, LIMIT) == ClassifyBody(
                    [TextItem(plain, None, None)], False, False, None)
                assert plain in (text, None)
                found += plain is not None
    assert found == 4 * len(texts)
