# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""From raw text to a store: inputs, readers, tokenizers, parts, engines."""
