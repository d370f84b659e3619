package main

import "testing"

// A mutation of a line that has changed no longer applies. `make faults` runs the suite on every mutation and takes about an hour.
func TestEveryMutationApplies(t *testing.T) {
	mutations, err := parse(list)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutations {
		if _, err := m.apply("../.."); err != nil {
			t.Errorf("%s: %s: %v", m.file, m.what, err)
		}
	}
}
