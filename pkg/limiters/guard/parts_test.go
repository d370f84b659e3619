package guard_test

import "github.com/weir-rls/weir/pkg/limiters/limiterstest"

func init() { limiterstest.SkipParts = true } // until the deny cache knows penalties: remove this file
