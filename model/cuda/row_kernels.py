"""Row operations between 8-bit products by our own kernels: one pass over memory each.

Implements model.programs.row_ops.RowOps. Letters: T rows, H and N columns; "wide" is the network's
16-bit type. Outputs are torch's memory, so a capture may hold them.

Annotations are evaluated here, as TorchScript reads those of methods that it calls but ignores.
"""

from collections.abc import Callable
from ctypes import c_float, c_int, c_void_p

import torch
from torch import Tensor, nn

from model.cuda import cubins, nvrtc
from model.cuda.cubins import Cubins
from model.cuda.launch import Driver, Function, Module
from model.cuda.row_sources import NotSupported, Variant

# What a load takes at once.
ALIGNMENT_BYTES = 16


class Launcher:
    """Kernels by what they are compiled for: each is loaded when it is first asked for.

    `stream` gives the handle of the stream that torch launches on.
    """

    def __init__(self, made: Cubins, driver: Driver, codes: torch.dtype, wide: torch.dtype,
                 stream: Callable[[], int]) -> None:
        if wide not in (torch.float16, torch.bfloat16):
            raise NotSupported(f"our kernels compute between 16-bit products, not {wide}")
        if codes not in (torch.int8, torch.float8_e4m3fn):
            raise NotSupported(f"our kernels make 8-bit codes, not {codes}")
        self.codes, self.wide = codes, wide
        self._made, self._driver, self._stream = made, driver, stream
        self._modules: dict[tuple[str, ...], Module] = {}
        self._functions: dict[Variant, Function] = {}

    def load(self, kernel: str, width: int, of_sums: bool) -> tuple[Variant, Function]:
        """The kernel for rows of this width. Raises NotSupported."""
        variant = Variant(kernel, width, self.wide == torch.bfloat16, self.codes != torch.int8,
                          of_sums)
        found = self._functions.get(variant)
        if found is None:
            file = (variant.source(), *variant.defines())
            if file not in self._modules:
                self._modules[file] = self._driver.load(self._made.cubin(variant))
            found = self._functions[variant] = self._modules[file].function(kernel)
        return variant, found

    def launch(self, kernel: str, rows: Tensor, of_sums: bool,
               *arguments: c_void_p | c_float) -> None:
        """Over all rows; the last argument of every kernel is their number."""
        variant, function = self.load(kernel, rows.size(1), of_sums)
        if rows.size(0):
            function.launch(variant.blocks(rows.size(0)), variant.block_threads, self._stream(),
                            *arguments, c_int(rows.size(0)))

    def codes_and_scales(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Memory for both."""
        return (torch.empty_like(like, dtype=self.codes),
                torch.empty((like.size(0), 1), dtype=torch.float32, device=like.device))

    def product(self, product: Tensor, row_scales: Tensor | None, column_scales: Tensor | None,
                bias: Tensor | None) -> list[c_void_p]:
        """The first four arguments of a kernel that takes a product in either form."""
        if row_scales is None or column_scales is None or bias is None:
            return [_at(product, self.wide), c_void_p(), c_void_p(), c_void_p()]
        rows, width = product.shape
        return [_at(product, torch.int32), _at(row_scales, torch.float32, rows),
                _at(column_scales, torch.float32, width), _at(bias, torch.float32, width)]

    def norm(self, product: Tensor, residual: Tensor, gain: Tensor, shift: Tensor,
             eps: float) -> list[c_void_p | c_float]:
        """The next four of one that normalises."""
        width = product.size(1)
        return [_at(residual, self.wide, product.numel()), _at(gain, torch.float32, width),
                _at(shift, torch.float32, width), c_float(eps)]


# One for each arithmetic that was tried. TorchScript calls an ignored method on a module that has
# nothing of the instance but what is a value to TorchScript: a number here.
_launchers: list[Launcher] = []


class RowKernels(nn.Module):
    """RowOps by kernels. A width that has none raises NotSupported: `prepare` finds out before the
    network is built, and has everything loaded before the first capture."""

    def __init__(self, launcher: Launcher) -> None:
        super().__init__()
        _launchers.append(launcher)
        self.number: int = len(_launchers) - 1

    @torch.jit.ignore
    def prepare(self, hidden: int, intermediate: int) -> None:
        """Compiles and loads what a network of these widths needs. Raises NotSupported."""
        on = _launchers[self.number]
        of_sums = on.codes == torch.int8
        on.load("quantise", hidden, False)
        on.load("add_norm_quantise", hidden, of_sums)
        on.load("gelu_quantise", intermediate, of_sums)
        if of_sums:
            on.load("dequantise_bias", 3 * hidden, True)

    @torch.jit.ignore
    def quantise(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Wide x [T, H] → codes [T, H], scales float32 [T, 1]."""
        on = _launchers[self.number]
        codes, scales = on.codes_and_scales(x)
        on.launch("quantise", x, False, _at(x, on.wide), _at(codes), _at(scales))
        return codes, scales

    @torch.jit.ignore
    def dequantise_bias(self, sums: Tensor, row_scales: Tensor, column_scales: Tensor,
                        bias: Tensor) -> Tensor:
        """int32 sums [T, N] → wide [T, N]."""
        on = _launchers[self.number]
        out = torch.empty_like(sums, dtype=on.wide)
        on.launch("dequantise_bias", sums, True,
                  *on.product(sums, row_scales, column_scales, bias), _at(out))
        return out

    @torch.jit.ignore
    def add_norm_quantise(self, product: Tensor, row_scales: Tensor | None,
                          column_scales: Tensor | None, bias: Tensor | None, residual: Tensor,
                          gain: Tensor, shift: Tensor, eps: float
                          ) -> tuple[Tensor, Tensor, Tensor]:
        """LayerNorm(product + residual) · gain + shift → wide [T, H], codes [T, H], scales [T, 1].
        """
        on = _launchers[self.number]
        out = torch.empty_like(residual)
        codes, scales = on.codes_and_scales(product)
        on.launch("add_norm_quantise", product, row_scales is not None,
                  *on.product(product, row_scales, column_scales, bias),
                  *on.norm(product, residual, gain, shift, eps), _at(out), _at(codes), _at(scales))
        return out, codes, scales

    @torch.jit.ignore
    def add_norm(self, product: Tensor, row_scales: Tensor | None, column_scales: Tensor | None,
                 bias: Tensor | None, residual: Tensor, gain: Tensor, shift: Tensor, eps: float
                 ) -> Tensor:
        """The same without codes: wide [T, H]."""
        on = _launchers[self.number]
        out = torch.empty_like(residual)
        on.launch("add_norm", product, row_scales is not None,
                  *on.product(product, row_scales, column_scales, bias),
                  *on.norm(product, residual, gain, shift, eps), _at(out))
        return out

    @torch.jit.ignore
    def gelu_quantise(self, product: Tensor, row_scales: Tensor | None,
                      column_scales: Tensor | None, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        """GELU(product) → codes [T, N], scales [T, 1]."""
        on = _launchers[self.number]
        codes, scales = on.codes_and_scales(product)
        on.launch("gelu_quantise", product, row_scales is not None,
                  *on.product(product, row_scales, column_scales, bias), _at(codes), _at(scales))
        return codes, scales


def open_row_kernels(capability: tuple[int, int], codes: torch.dtype, wide: torch.dtype,
                     stream: Callable[[], int]) -> RowKernels:
    """Kernels for a device of this capability, on which torch has made its context. Raises
    NotSupported."""
    major = int(torch.version.cuda.split(".")[0]) if torch.version.cuda else None
    made = Cubins(nvrtc.find(major), capability, cubins.private_folder())
    return RowKernels(Launcher(made, Driver(), codes, wide, stream))


def _at(tensor: Tensor, dtype: torch.dtype | None = None, count: int | None = None) -> c_void_p:
    """Where a tensor lies, if that is what a kernel takes; a kernel cannot check."""
    if not tensor.is_contiguous() or tensor.data_ptr() % ALIGNMENT_BYTES:
        raise ValueError("a kernel takes whole tensors, not slices of others")
    if dtype is not None and tensor.dtype != dtype:
        raise ValueError(f"a kernel for {dtype} was given {tensor.dtype}")
    if count is not None and tensor.numel() != count:
        raise ValueError(f"a kernel for {count} numbers was given {tensor.numel()}")
    return c_void_p(tensor.data_ptr())
