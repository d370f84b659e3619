// Package simulate runs rules over recorded or synthetic requests and reports which requests and keys the limits deny.
package simulate

// A Model is how clients react to a denial.
type Model string

// The client models.
const (
	Drop   Model = "drop"   // a denied request is not sent again
	Obey   Model = "obey"   // a denied request is sent again after its retry-after
	Hammer Model = "hammer" // a denied request is sent again at a short fixed interval
)
