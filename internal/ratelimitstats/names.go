package ratelimitstats

import "github.com/weir-rls/weir/pkg/descriptors"

// levelEnd separates the domain and the levels of a series' name. It never occurs in valid UTF-8.
const levelEnd = '\xff'

// maxNameBytes bounds a domain and a level, because both may come from a request. A longer text is
// truncated and ends with a hash. Names that gateways derive from their routes are shorter.
const maxNameBytes = 700

// maxLevelsBytes bounds all levels of a series together. Each scrape repeats them for every
// counter, so 10,000 series with many long levels would make a scrape of gigabytes.
const maxLevelsBytes = 4096

// appendName appends the name of a series.
func appendName(dst []byte, domain string, levels []string) []byte {
	dst = appendClean(dst, descriptors.TruncateWithHash(domain, maxNameBytes))
	n := levelBound(levels)
	for _, level := range levels {
		dst = append(dst, levelEnd)
		dst = appendClean(dst, descriptors.TruncateWithHash(level, n))
	}
	return dst
}

// levelBound returns the bound of each level, in bytes: maxNameBytes, or less if the levels would
// exceed maxLevelsBytes together.
func levelBound(levels []string) int {
	sum := 0
	for _, level := range levels {
		sum += min(len(level), maxNameBytes)
	}
	if sum > maxLevelsBytes {
		return maxLevelsBytes / len(levels)
	}
	return maxNameBytes
}

// appendClean appends s with an underscore for each character that is special in statsd: colons,
// bars, and the dots of an IPv4 address, as in envoyproxy/ratelimit, whose names dashboards use. It
// also replaces control characters, because a line feed could forge a line of statsd.
func appendClean(dst []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == ':' || c == '|' || c < ' ' || c == 0x7f:
			dst = append(dst, '_')
		case '0' <= c && c <= '9':
			end := ipv4(s, i)
			for ; i < end; i++ {
				if s[i] == '.' {
					dst = append(dst, '_')
				} else {
					dst = append(dst, s[i])
				}
			}
			i--
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

// ipv4 returns the end of the IPv4 address that starts at s[i], or i + 1 if there is none.
func ipv4(s string, i int) int {
	at := i
	for part := range 4 {
		if part > 0 {
			if at >= len(s) || s[at] != '.' {
				return i + 1
			}
			at++
		}
		first := at
		for at < len(s) && at < first+3 && '0' <= s[at] && s[at] <= '9' {
			at++
		}
		if at == first {
			return i + 1
		}
	}
	return at
}
