// Package redisscripts holds what Weir runs inside Redis: each algorithm of pkg/limiters once more in Lua, a file each,
// and the driver that decides a batch of hits with them in one call. They are one script, so that Redis caches one.
//
// The calling convention stands in the header of batch.lua; what an algorithm keeps in a key, and the numbers it takes,
// in its own. Redis 6.2 or Valkey 7.2 is enough, without any module.
package redisscripts

import (
	_ "embed"
	"strings"
)

var (
	//go:embed prelude.lua
	prelude string
	//go:embed fixed_window.lua
	fixedWindow string
	//go:embed sliding_log.lua
	slidingLog string
	//go:embed funnel.lua
	funnel string
	//go:embed batch.lua
	driver string
)

// An Algorithm is the Lua twin of one algorithm of pkg/limiters.
type Algorithm struct {
	Name   string
	Source string
}

// Algorithms are the twins, under the names that limits use.
var Algorithms = []Algorithm{
	{"fixed_window", fixedWindow},
	{"sliding_log", slidingLog},
	{"funnel", funnel},
}

// ReplyFields is how many elements of the reply belong to one hit.
const ReplyFields = 4

// Batch is the source of the one script, made of the driver and of algorithms.
func Batch(algorithms ...Algorithm) string {
	var b strings.Builder
	b.WriteString(prelude)
	b.WriteString("local algorithms = {}\n")
	for _, a := range algorithms {
		// A function each, called by the driver for those a batch uses: the others cost it nothing.
		b.WriteString("algorithms['" + a.Name + "'] = function()\n" + a.Source + "end\n")
	}
	b.WriteString(driver)
	return b.String()
}
