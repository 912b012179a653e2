# SPDX-License-Identifier: Apache-2.0
"""The cases, by what they are about."""
