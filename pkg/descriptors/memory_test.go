package descriptors_test

import (
	"runtime"
	"testing"
)

// maxBytesPerRule bounds the memory of a rule with one entry, a text of 18 bytes and a limit that
// other rules share.
const maxBytesPerRule = 380

func TestMemoryPerRuleIsBounded(t *testing.T) {
	const n = 5_000
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	rules := manyRules(t, n)
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&after)
	perRule := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / n
	t.Logf("%d bytes per rule", perRule)
	if _, rules := rules.Counts(); rules != n || perRule > maxBytesPerRule {
		t.Errorf("%d rules take %d bytes each, want at most %d", rules, perRule, maxBytesPerRule)
	}
}
