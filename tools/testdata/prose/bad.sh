#!/bin/bash
# It is in vain: the lane is gone.
