package failures

import "testing"

func TestNewRowReplacesRowOfSameFailure(t *testing.T) {
	page := "text\n" + begin + head + "| frozen | 1 |\n| frozen for long | 2 |\n" + end + "more\n" +
		begin + head + "| another server | 5 |\n" + end
	got, err := replaced(page, []string{"| another server | 6 |\n", "| frozen | 3 |\n", "| killed | 4 |\n"})
	want := "text\n" + begin + head + "| frozen | 3 |\n| frozen for long | 2 |\n| killed | 4 |\n" + end + "more\n" +
		begin + head + "| another server | 6 |\n" + end
	if err != nil || got != want {
		t.Errorf("%v\n got %s\nwant %s", err, got, want)
	}
}
