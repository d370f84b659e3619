package descriptors

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/gaissmai/bart"
)

// A prefixTable maps addresses to the records of siblings with the same key, by the longest prefix
// that contains the address. Nil is empty.
type prefixTable struct{ records *bart.Table[recordID] }

// newPrefixTable returns the table of siblings that have prefixes and a record, and sets
// list.siblings of each.
func newPrefixTable(siblings []*Node) *prefixTable {
	type recordOf struct {
		netip.Prefix
		id recordID
	}
	var sorted []recordOf
	table := new(prefixTable)
	for _, n := range siblings {
		n.list.siblings = table
		for _, prefix := range n.list.prefixes {
			sorted = append(sorted, recordOf{prefix, n.record})
		}
	}
	// Cloning a table that was filled in sorted order makes its nodes contiguous, which makes
	// BenchmarkMatchPrefix faster.
	slices.SortFunc(sorted, func(a, b recordOf) int { return a.Prefix.Compare(b.Prefix) })
	var records bart.Table[recordID]
	for _, prefix := range sorted {
		records.Insert(prefix.Prefix, prefix.id)
	}
	table.records = records.Clone()
	return table
}

// find returns the record of the longest prefix that contains value; 0 if there is none, or if
// value is not an address.
func (p *prefixTable) find(value string) recordID {
	if p == nil {
		return 0
	}
	address, ok := parseAddress(value)
	if !ok {
		return 0
	}
	id, _ := p.records.Lookup(address)
	return id
}

// longest returns the longest prefix that contains address.
func (p *prefixTable) longest(address netip.Addr) netip.Prefix {
	longest, _, _ := p.records.LookupPrefixLPM(netip.PrefixFrom(address, address.BitLen()))
	return longest
}

// parseAddress parses an IP address into its canonical form: without a zone, and IPv4 if it is
// IPv4-mapped. It allocates only for the error of an address such as 10.0.0.256.
func parseAddress(text string) (netip.Addr, bool) {
	text, zone, zoned := strings.Cut(text, "%")
	if !mayBeAddress(text) {
		return netip.Addr{}, false
	}
	address, err := netip.ParseAddr(text)
	if err != nil || zoned && (zone == "" || address.Is4()) {
		return netip.Addr{}, false
	}
	return address.Unmap(), true
}

// mayBeAddress reports whether text has the length and the characters of an address.
func mayBeAddress(text string) bool {
	const longest = len("ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255")
	if len(text) > longest {
		return false
	}
	separated := false
	for i := range len(text) {
		switch c := text[i]; {
		case c == '.', c == ':':
			separated = true
		case '0' <= c && c <= '9', 'a' <= c && c <= 'f', 'A' <= c && c <= 'F':
		default:
			return false
		}
	}
	return separated
}
