#!/bin/sh
# No tabs.
! grep -n "$(printf '\t')" shop.py
