// Package redisscripts holds what Weir runs inside Redis: each algorithm of pkg/limiters once more in Lua, a file each,
// and the driver that decides a batch of hits with them in one call. They are one script, so that Redis caches one.
//
// The calling convention stands in the header of batch.lua; what an algorithm keeps in a key, and the numbers it takes,
// in its own. Redis 6.2 or Valkey 7.2 is enough, without any module.
package redisscripts

import (
	"embed"
	"fmt"
	"strings"
)

var (
	//go:embed prelude.lua
	prelude string
	//go:embed batch.lua
	driver string
	//go:embed *.lua
	files embed.FS
)

// An Algorithm is the Lua twin of one algorithm of pkg/limiters.
type Algorithm struct {
	Name   string
	Source string
}

// Algorithms are the twins, by the names that limits use. Each is the file of its name; none has to be registered.
var Algorithms = allAlgorithms()

func allAlgorithms() []Algorithm {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic(err) // of files that are part of the program
	}
	var all []Algorithm
	for _, entry := range entries {
		name := strings.TrimSuffix(entry.Name(), ".lua")
		if name == "prelude" || name == "batch" {
			continue
		}
		source, err := files.ReadFile(entry.Name())
		if err != nil {
			panic(err)
		}
		all = append(all, Algorithm{name, string(source)})
	}
	return all
}

// ReplyFields is how many elements of the reply belong to one hit.
const ReplyFields = 4

// packed is how many hits' answers are packed at a time: each is 4 values on Lua's stack.
const packed = 64

// Batch is the source of the one script, made of the driver and of algorithms.
func Batch(algorithms ...Algorithm) string {
	var b strings.Builder
	b.WriteString(prelude)
	// How the driver packs its reply. To make a string costs Lua as much as it is long, and one of the source is made once.
	fmt.Fprintf(&b, "local PACKED, FORMAT = %d, '>I8%s'\n", packed, strings.Repeat("I1i8i8i8", packed))
	// One function for all: in Lua each costs something by being there, and a batch uses one algorithm as a rule.
	b.WriteString("local function algorithm_of(name)\n")
	for _, a := range algorithms {
		b.WriteString("if name == '" + a.Name + "' then\n" + a.Source + "end\n")
	}
	b.WriteString("end\n" + driver)
	return b.String()
}
