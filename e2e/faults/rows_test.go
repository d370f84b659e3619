package faults

import "testing"

func TestNewRowReplacesRowOfSameFault(t *testing.T) {
	page := "text\n" + begin + head + "| frozen | 1 |\n| frozen for long | 2 |\n" + end + "more\n"
	got, err := replaced(page, []string{"| frozen | 3 |\n", "| killed | 4 |\n"})
	want := "text\n" + begin + head + "| frozen | 3 |\n| frozen for long | 2 |\n| killed | 4 |\n" + end + "more\n"
	if err != nil || got != want {
		t.Errorf("%v\n got %s\nwant %s", err, got, want)
	}
}
