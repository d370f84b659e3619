// Package spelling finds the known word that a misspelled word is nearest to.
package spelling

import "strings"

// Nearest returns the one of words that word is probably a misspelling of, or "". It ignores case and separators.
func Nearest(word string, words []string) string { return nearest(word, words, 2) }

// OneMistake returns the one of words that is at most one typing mistake away from word, or "". Like Nearest, it ignores
// case and separators.
func OneMistake(word string, words []string) string { return nearest(word, words, 1) }

// nearest returns the nearest of the words that are at most so many mistakes away from word.
func nearest(word string, words []string, mistakes int) string {
	const maxWord = 48 // bytes, which bounds the work
	if len(word) > maxWord {
		return ""
	}
	best, minDistance := "", mistakes+1
	for _, w := range words {
		d := distance(plain(word), plain(w))
		// In a short word, one other letter already makes another word.
		if d < minDistance && 3*d <= len(w) {
			best, minDistance = w, d
		}
	}
	return best
}

// plain drops what people spell differently: rateLimit, rate-limit, RATE_LIMIT.
func plain(word string) string {
	return strings.NewReplacer("_", "", "-", "", " ", "").Replace(strings.ToLower(word))
}

// distance returns the number of insertions, deletions, substitutions and swaps of neighbours that turn a into b.
func distance(a, b string) int {
	d := make([][]int, len(a)+1)
	for i := range d {
		d[i] = make([]int, len(b)+1)
		d[i][0] = i
	}
	for j := range d[0] {
		d[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			d[i][j] = min(d[i-1][j], d[i][j-1]) + 1
			if a[i-1] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-1][j-1])
			} else {
				d[i][j] = min(d[i][j], d[i-1][j-1]+1)
			}
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}
