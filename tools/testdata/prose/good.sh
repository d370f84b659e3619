#!/bin/bash
# shellcheck disable=SC2034
echo "${a#whoever}" '# anew'
