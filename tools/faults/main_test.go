package main

import "testing"

// A fault whose place has changed is seeded nowhere. To see that all of them are seen takes an hour: make faults.
func TestEveryFaultHasItsPlace(t *testing.T) {
	faults, err := parse(list)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range faults {
		if _, err := f.seeded("../.."); err != nil {
			t.Errorf("%s: %s: %v", f.file, f.what, err)
		}
	}
}
