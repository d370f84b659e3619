// Package bad tells whether its prose is as
// good as new.
package bad

// A comment of one paragraph goes over several lines, and so does the sentence in it, which is
// longer than thirty words because it says the same thing again and again until nobody listens.
var a = 1 // whoever asks
/* It stands before the store, and gives hits back in vain. */

// A T has the fields of a row. A row has no bound.
type T struct{}

// B has a comment that is wider than the comments of this project are, which have at most a hundred columns.
type B struct{}

type flags struct {
	Wait string `name:"wait" help:"The time that clients wait, for it is long."`
}
