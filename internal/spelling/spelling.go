// Package spelling suggests corrections of misspelled words.
package spelling

import "strings"

// Nearest returns the element of words that word probably misspells, or "". It ignores case and
// separators.
func Nearest(word string, words []string) string { return nearest(word, words, 2) }

// OneMistake returns the element of words that is at most one typing mistake away from word, or "".
// It ignores case and separators.
func OneMistake(word string, words []string) string { return nearest(word, words, 1) }

// nearest returns the nearest of words within a number of mistakes, or "".
func nearest(word string, words []string, mistakes int) string {
	const maxWordBytes = 48 // bounds the work
	if len(word) > maxWordBytes {
		return ""
	}
	best, minDistance, plainWord := "", mistakes+1, plain(word)
	for _, w := range words {
		d := distance(plainWord, plain(w))
		// In a short word, one changed letter often makes another word.
		if d < minDistance && 3*d <= len(w) {
			best, minDistance = w, d
		}
	}
	return best
}

var withoutSeparators = strings.NewReplacer("_", "", "-", "", " ", "")

// plain normalizes spellings such as rateLimit, rate-limit and RATE_LIMIT.
func plain(word string) string { return withoutSeparators.Replace(strings.ToLower(word)) }

// distance returns the edit distance of a and b with insertions, deletions, substitutions and
// transpositions of neighbors.
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
