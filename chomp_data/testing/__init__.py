# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Real tiny stores and comparisons of batches, for our tests and a user's."""
