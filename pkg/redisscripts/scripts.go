// Package redisscripts contains the Lua code that runs inside Redis: a twin of each algorithm of
// pkg/limiters, and a driver that decides a batch of operations in one call. All of it is one
// script, so Redis caches a single one, and it needs no Redis module.
//
// The file wire.go documents the arguments and the reply. The header of each algorithm documents
// its keys and its arguments.
package redisscripts

import (
	"embed"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/weir-rls/weir/pkg/limiters"
)

//go:embed *.lua
var files embed.FS

// extraFiles are the files for limits with extra state.
var extraFiles = []string{
	"decide_concurrency", "decide_extra", "decide_group", "decide_reservations", "decide_same_key", "failures", "keys", "leases_hash", "leases_zset",
	"penalty", "settle",
}

// verdictsPerPack is the number of verdicts that one call of struct.pack encodes. Each takes four
// values on Lua's stack.
const verdictsPerPack = 64

// constants holds the value of each name such as $MAX_HITS in the Lua files. Source replaces the
// name by its value, because a Lua local that closures capture costs time in every call.
var constants = map[string]any{
	"SAME_KEY": KindSameKey, "ALONE": KindAlone, "GROUPED": KindGrouped, "CONCURRENCY": KindConcurrency, "RESERVATIONS": KindReservations,
	"COUNT_DENIED": countDeniedFlag,
	"RUN_LAYOUT":   runLayout,
	"ALONE_LAYOUT": aloneLayout, "GROUPED_LAYOUT": groupedLayout, "CONCURRENCY_LAYOUT": concurrencyLayout, "EXTRA_LAYOUT": extraLayout,
	"ALONE_SIZE": aloneLayout.size(), "GROUPED_SIZE": groupedLayout.size(), "CONCURRENCY_SIZE": concurrencyLayout.size(), "EXTRA_SIZE": extraLayout.size(),
	"END": limiters.OpEnd, "INSPECT": limiters.OpInspect,
	"DENIED": ResultDenied, "ALLOWED": ResultAllowed, "FAILED": ResultFailed, "PENALIZED": ResultPenalized,
	"TOO_MANY_LEASES": ResultTooManyLeases, "PENALTY_BEGAN": ResultPenaltyBegan, "DURING_PENALTY": ResultDuringPenalty,
	"LEASE_ALREADY_OPEN": ResultLeaseAlreadyOpen,

	"MAX_HITS":            int64(limiters.MaxHits),
	"MAX_LEASES":          limiters.MaxLeases,
	"LEASES_PER_OP":       limiters.LeasesPerOp,
	"ENDED_TTL":           limiters.EndedTTL.Microseconds(),
	"MAX_LEASE_WAIT":      limiters.MaxLeaseWait.Microseconds(),
	"MAX_FUNNEL_USED":     int64(limiters.MaxFunnelUsed),
	"MAX_LOG_LIMIT":       limiters.MaxLogLimit, // the largest maximum of a sliding log
	"MAX_MOVED_ENTRIES":   limiters.MaxMovedEntries,
	"MAX_PENALTIES_BEGUN": limiters.MaxPenaltiesBegun,
	"NO_ID":               "'" + strings.Repeat(`\0`, 16) + "'", // the lease id of an operation without a lease

	"HEAD_FIELD":      "'h'",   // the field of a hash of reservations that has its counts
	"ONE_LEASE":       1 << 16, // added to the counts of a hash for each reservation and ended id, see decide_reservations.lua
	"MAX_HASH_LEASES": 64,      // the most reservations and ended ids of a hash
	"EXPIRY_FACTOR":   1 << 15, // the factor of the expiry in the counts of a sorted set of leases

	"LOG_ENTRY_SIZE":     9,              // the bytes of an entry of a sliding log
	"LOG_SUMS":           1 << 21,        // the sum in an entry of a log is modulo this number
	"LOG_TIMES":          int64(1 << 51), // the time in an entry of a log is modulo this number
	"MAX_STRING_ENTRIES": 64,             // the most entries of a log that is a string

	"KEYS_PER_COMMAND":  MaxRunOps, // the most keys or members of a Redis command; unpack puts them on Lua's stack
	"VERDICTS_PER_PACK": verdictsPerPack,
	"PACK_FORMAT":       "'>I8" + strings.Repeat(verdictLayout.formats(), verdictsPerPack) + "'", // packs verdictsPerPack verdicts of a reply
}

// source returns a Lua file with the values of its constants.
func source(name string) string {
	text, err := files.ReadFile(name + ".lua")
	if err != nil {
		panic(err) // impossible: the files are part of the program
	}
	return os.Expand(string(text), func(name string) string {
		value, found := constants[name]
		if !found {
			panic("redisscripts: no constant has the name $" + name)
		}
		return fmt.Sprint(value)
	})
}

// Source returns the source of the script: the driver with all algorithms.
func Source() string {
	var b strings.Builder
	b.WriteString(source("prelude") + "function run_file(name, env)\n")
	for _, name := range slices.Concat(limiters.Algorithms(), extraFiles) {
		b.WriteString("if name == '" + name + "' then\n" + source(name) + "end\n")
	}
	b.WriteString("end\n" + source("batch"))
	return b.String()
}
