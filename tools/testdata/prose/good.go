// Package good contains comments without findings.
//
//	whoever: code in a comment is not prose
package good

//go:generate echo whoever is told anew

// A T that has no fields is empty.
type T struct{}

// Take charges n hits. It returns [ErrFull] if the store has no room.
func Take(n int) string {
	return "what is told // whoever" // 0 is a peek
}
