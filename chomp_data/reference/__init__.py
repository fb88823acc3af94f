# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The reference trainer: a small decoder that consumes batches as meant.

Nothing else in the package imports it; it needs the `train` extra.
"""
