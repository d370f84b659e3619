package guard_test

import "github.com/weir-rls/weir/pkg/limiters/limiterstest"

func init() { limiterstest.SkipParts = true } // until limits with parts have twins in Lua: remove this file
