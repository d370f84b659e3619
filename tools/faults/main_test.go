package main

import "testing"

// A fault whose line has changed cannot be seeded. `make faults` runs the suite on every fault and takes an hour.
func TestEveryFaultCanBeSeeded(t *testing.T) {
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
