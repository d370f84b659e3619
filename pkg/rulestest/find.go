package rulestest

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/weir-rls/weir/pkg/descriptors"
)

// maxTried bounds the search for a request that reaches a rule.
const maxTried = 20_000

// find returns entries that reach a rule, nil if it finds none.
func (g *generator) find(rule *descriptors.Rule) []descriptors.Entry {
	levels := rule.Levels()
	choices := make([][]descriptors.Entry, len(levels))
	for i := range levels {
		choices[i] = choicesOf(&levels[i])
	}
	domain, tried := g.rules.Domain(rule.Domain), 0
	entries := make([]descriptors.Entry, len(levels))
	var search func(level int) bool
	search = func(level int) bool {
		if level == len(levels) {
			tried++
			return domain.Match(entries) == rule
		}
		for _, choice := range choices[level] {
			if entries[level] = choice; search(level + 1) {
				return true
			}
			if tried > maxTried {
				return false
			}
		}
		return false
	}
	if !search(0) {
		return nil
	}
	return entries
}

// anyTexts replace a '*', and are values that no rule names.
var anyTexts = []string{"example", "1", "x", "", "other", "a-b_c", "192.0.2.1", "2001:db8::1"}

// choicesOf returns entries that a level matches, the plainest first. Another level may match some of them before.
func choicesOf(l *descriptors.Level) []descriptors.Entry {
	var all []descriptors.Entry
	switch {
	case len(l.Values) > 0:
		for _, v := range l.Values {
			all = append(all, descriptors.Entry{Key: l.Key, Value: v})
		}
		return all
	case len(l.Prefixes) > 0:
		for _, p := range l.Prefixes {
			for _, address := range addressesOf(p) {
				all = append(all, descriptors.Entry{Key: l.Key, Value: address.String()})
			}
		}
		return all
	}
	for _, key := range fillStars(l.Key) {
		values := fillStars(l.Value)
		if l.Value == "" {
			values = anyTexts
		}
		for _, v := range values {
			all = append(all, descriptors.Entry{Key: key, Value: v})
		}
	}
	return all
}

// addressesOf returns the addresses of a prefix that have at most one bit after it. Longer prefixes within it may take some of them.
func addressesOf(p netip.Prefix) []netip.Addr {
	first := p.Masked().Addr()
	var all []netip.Addr
	for bit := first.BitLen() - 1; bit >= p.Bits(); bit-- {
		bytes := first.AsSlice()
		bytes[bit/8] |= 1 << (7 - bit%8)
		address, _ := netip.AddrFromSlice(bytes)
		all = append(all, address)
	}
	return append(all, first)
}

// fillStars returns texts that a pattern matches.
func fillStars(pattern string) []string {
	if !strings.Contains(pattern, "*") {
		return []string{pattern}
	}
	var all []string
	for _, text := range anyTexts {
		all = append(all, strings.ReplaceAll(pattern, "*", text))
	}
	return append(all, strings.ReplaceAll(pattern, "*", fmt.Sprint(len(pattern))+"th"))
}
