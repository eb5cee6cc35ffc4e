"""Conversational speech recognition that remembers: context, speakers and new words."""

from icefall_ctx.cpu import fast_blas_on_amd

fast_blas_on_amd()  # here, since it has to come before anybody's first matrix product
