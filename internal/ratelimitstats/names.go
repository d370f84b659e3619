package ratelimitstats

import "github.com/weir-rls/weir/pkg/descriptors"

// partEnd follows the domain and each part of a name except the last. It never occurs in valid
// UTF-8.
const partEnd = '\xff'

// maxPartBytes bounds a domain and a part, because both may come from a request. A longer text is
// truncated and ends with a hash. Names that gateways derive from their routes are shorter.
const maxPartBytes = 700

// maxNameBytes bounds all parts of a name together. Each scrape repeats them for every counter, so
// 10,000 series with many long parts would make a scrape of gigabytes.
const maxNameBytes = 4096

// appendName appends the name of a series: its domain, and a part for each entry.
func appendName(dst []byte, domain string, parts []string) []byte {
	dst = appendClean(dst, descriptors.TruncateWithHash(domain, maxPartBytes))
	n := partBound(parts)
	for _, part := range parts {
		dst = append(dst, partEnd)
		dst = appendClean(dst, descriptors.TruncateWithHash(part, n))
	}
	return dst
}

// partBound returns the bound of each part, in bytes: maxPartBytes, or less if the parts would
// exceed maxNameBytes together.
func partBound(parts []string) int {
	sum := 0
	for _, part := range parts {
		sum += min(len(part), maxPartBytes)
	}
	if sum > maxNameBytes {
		return maxNameBytes / len(parts)
	}
	return maxPartBytes
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
