package telemetry

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// A name of series is a domain and the levels of a rule, each made clean, with a byte between them that no text holds.
const levelEnd = '\xff'

// maxText bounds a domain and a level, which may hold what a request said. A longer one is cut, and told apart by a
// hash. The longest that gateways make of the names of their routes are below it.
const (
	maxText  = 700
	textHash = 8 // bytes
)

func appendName(dst []byte, domain string, levels []string) []byte {
	dst = appendClean(dst, bounded(domain))
	for _, level := range levels {
		dst = append(dst, levelEnd)
		dst = appendClean(dst, bounded(level))
	}
	return dst
}

func bounded(s string) string {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	if len(s) <= maxText {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	tail := "~" + hex.EncodeToString(sum[:textHash])
	return strings.ToValidUTF8(s[:maxText-len(tail)], "") + tail
}

// appendClean replaces what the text protocol of statsd gives a meaning to, as the incumbent does, whose names are
// those of dashboards too: colons, bars, and dots within what looks like an IPv4 address. It replaces control
// characters as well: a value with a line feed in it could say anything.
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

// ipv4 is the end of the four numbers of up to three digits that start at i, with dots between; else i + 1.
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
