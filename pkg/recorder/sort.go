package recorder

import (
	"cmp"
	"slices"
)

// sortLines sorts lines by at, and then by order. Equal lines keep their order. It also returns unused memory. It is a radix sort:
// a comparison sort took as long as all other work of the writer.
func sortLines(lines, unused []heldLine) (sorted, _ []heldLine) {
	if len(lines) == 0 {
		return lines, unused
	}
	first, last := lines[0].at, lines[0].at
	for i := range lines {
		first, last = min(first, lines[i].at), max(last, lines[i].at)
	}
	if uint64(last)-uint64(first) >= 1<<48 { // nine years: a clock was wrong
		slices.SortStableFunc(lines, func(a, b heldLine) int {
			return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.order, b.order))
		})
		return lines, unused
	}
	key := func(l *heldLine) uint64 { return uint64(l.at-first)<<16 | uint64(l.order) }
	var counts [8][256]uint32 // of each value of each byte of the keys
	for i := range lines {
		for j, k := 0, key(&lines[i]); j < len(counts); j, k = j+1, k>>8 {
			counts[j][byte(k)]++
		}
	}
	unused = slices.Grow(unused[:0], len(lines))[:len(lines)]
	for j := range counts {
		shift, starts := 8*j, &counts[j]
		if int(starts[byte(key(&lines[0])>>shift)]) == len(lines) {
			continue // all keys have the same byte
		}
		start := uint32(0)
		for value, n := range starts {
			starts[value], start = start, start+n
		}
		for i := range lines {
			at := &starts[byte(key(&lines[i])>>shift)]
			unused[*at] = lines[i]
			*at++
		}
		lines, unused = unused, lines
	}
	return lines, unused
}
