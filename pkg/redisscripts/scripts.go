// Package redisscripts has the Lua code that runs inside Redis: a twin of each algorithm of pkg/limiters, and a driver that decides
// a batch of hits in one call. All of it is one script, so Redis caches a single one, and it needs no Redis module.
//
// The header of batch.lua documents the arguments and the reply. The header of each algorithm documents its keys and its arguments.
package redisscripts

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-rls/weir/pkg/limiters"
)

var (
	//go:embed prelude.lua
	prelude string
	//go:embed batch.lua
	driver string
	//go:embed *.lua
	files embed.FS
)

// extraFiles are the files for limits with extra state.
var extraFiles = []string{"decide_concurrency", "decide_extra", "decide_reserves", "penalty", "reservations", "reserve", "settle"}

func source(name string) string {
	text, err := files.ReadFile(name + ".lua")
	if err != nil {
		panic(err) // impossible: the files are part of the program
	}
	return string(text)
}

// packed is the number of verdicts that one call of struct.pack encodes. Each takes four values on Lua's stack.
const packed = 64

// Source returns the source of the script: the driver with all algorithms.
func Source() string {
	var b strings.Builder
	b.WriteString(prelude)
	// The format is a constant, because building the string would cost time in each call.
	fmt.Fprintf(&b, "local PACKED, FORMAT = %d, '>I8%s'\n", packed, strings.Repeat("I1i8i8i8", packed))
	// One function runs the other files on demand, because creating closures costs time, and most batches use one algorithm.
	b.WriteString("local function module_of(name)\n")
	for _, name := range slices.Concat(limiters.Algorithms(), extraFiles) {
		b.WriteString("if name == '" + name + "' then\n" + source(name) + "end\n")
	}
	b.WriteString("end\n" + driver)
	return b.String()
}
