package recording_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/recording"
)

var start = time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	return must.Write(t, filepath.Join(t.TempDir(), name), text)
}

func compress(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b)
	must.Succeed(t, err)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	must.Succeed(t, w.Close())
	return b.String()
}

// readFiles reads all lines and closes the files.
func readFiles(t *testing.T, f *recording.MultiReader) []recording.Line {
	t.Helper()
	defer func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	var all []recording.Line
	for {
		var line recording.Line
		switch err := f.Next(&line); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatal(err)
		}
		all = append(all, line)
	}
}

// Plain files, compressed files and standard input are read as one, in the order of the times.
// Lines of equal times are in the order of the files.
func TestFilesAreMergedByTime(t *testing.T) {
	plain := writeFile(t, "a.ndjson", line(1, "a1")+"\n"+line(5, "a5")+"\nnot JSON\n"+line(3, "a3")+"\n")
	late := writeFile(t, "b.ndjson", line(9, "b9")+"\n"+line(7, "b7"))
	packed := writeFile(t, "c.ndjson.zst", compress(t, line(0, "c0")+"\n"+line(5, "c5")+"\n"))
	empty := writeFile(t, "d.ndjson", "")
	f, err := recording.Open([]string{late, plain, "-", packed, empty}, strings.NewReader(line(4, "in4")+"\n"+line(5, "in5")+"\n"+line(8, "in8")))
	must.Succeed(t, err)
	if _, total := f.Bytes(); total != 0 {
		t.Errorf("the size of standard input is unknown, and the total is %d, want 0", total)
	}
	got := values(readFiles(t, f))
	if want := []string{"c0", "a1", "a3", "in4", "a5", "in5", "c5", "b7", "in8", "b9"}; !slices.Equal(got, want) {
		t.Errorf("read %q, want %q", got, want)
	}
	want := []recording.FileSkipCount{{File: plain, SkipCount: recording.SkipCount{Reason: recording.NotJSON, Lines: 1, First: 3}}}
	if got := f.Skipped(); !slices.Equal(got, want) {
		t.Errorf("skipped %+v, want %+v", got, want)
	}
	if got := f.Lines(); got != 11 {
		t.Errorf("%d lines, want 11", got)
	}
}

func TestFilesReportTheirProgress(t *testing.T) {
	text := strings.Repeat(line(1, "x")+"\n", 5000)
	f, err := recording.Open([]string{writeFile(t, "a", text), writeFile(t, "b", text)}, nil)
	must.Succeed(t, err)
	if read, total := f.Bytes(); read != 0 || total != int64(2*len(text)) {
		t.Errorf("at the beginning: %d of %d bytes, want 0 of %d", read, total, 2*len(text))
	}
	if n := len(readFiles(t, f)); n != 10_000 {
		t.Errorf("read %d lines, want 10000", n)
	}
	if read, total := f.Bytes(); read != total {
		t.Errorf("at the end: %d of %d bytes", read, total)
	}
}

// A compressed file that is cut is read as far as it goes, and the others are read to their ends.
func TestUnreadableFileIsCounted(t *testing.T) {
	var text strings.Builder
	for i := range 4000 {
		text.WriteString(line(i, strings.Repeat("x", i%97)) + "\n")
	}
	packed := compress(t, text.String())
	cut, whole := writeFile(t, "cut.zst", packed[:len(packed)/2]), writeFile(t, "whole", line(30_000, "last"))
	f, err := recording.Open([]string{cut, whole}, nil)
	must.Succeed(t, err)
	all := readFiles(t, f)
	if n := len(all); n < 500 || n > 3999 || all[n-1].Request.Descriptors[0].Entries[0].Value != "last" {
		t.Errorf("read %d lines", n)
	}
	skipped := f.Skipped()
	last := skipped[len(skipped)-1]
	if last.Reason != recording.Unreadable || last.File != cut || last.Lines != 1 || !strings.Contains(last.Error, "cannot be read beyond line") {
		t.Errorf("skipped %+v", skipped)
	}
}

func TestOpenNamesTheFaultyFile(t *testing.T) {
	good := writeFile(t, "good", line(1, "a"))
	missing, folder := filepath.Join(t.TempDir(), "missing"), t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	must.Succeed(t, os.Symlink(good, link))
	for want, paths := range map[string][]string{
		missing + ": no such file":                                          {good, missing},
		"the folder " + folder + " has no file":                             {good, folder},
		"recording " + good + " is given twice":                             {good, good},
		"recording - is given twice":                                        {"-", "-"},
		"recordings " + good + " and " + link + " are one file: remove one": {good, link}, // each of its hits would count twice
	} {
		if _, err := recording.Open(paths, strings.NewReader("")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want the error %s", paths, err, want)
		}
	}
}

// A folder stands for the files of a recorder in it. Other files and folders are left out.
func TestFolderOpensItsRecordings(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"weir-20261122T100001.000000Z-b.ndjson":     line(1, "second") + "\n" + line(2, "third"),
		"weir-20261122T100000.000000Z-a.ndjson.zst": compress(t, line(1, "first")),
		"notes.ndjson": line(0, "no"), ".weir-20261122T100000.000000Z-a.ndjson": line(0, "no"), "weir-20261122T100000.000000Z-a.ndjson.zst.part": line(0, "no"),
	} {
		must.Write(t, filepath.Join(dir, name), text)
	}
	must.Succeed(t, os.Mkdir(filepath.Join(dir, "weir-20261122T100002.000000Z-c.ndjson"), 0o700))
	// A file of the folder is not read a second time, however its path is written.
	again := dir + "/./weir-20261122T100000.000000Z-a.ndjson.zst"
	if _, err := recording.Open([]string{dir, again}, nil); err == nil || !strings.Contains(err.Error(), "given twice") {
		t.Errorf("the folder and %s: %v, want an error", again, err)
	}
	f, err := recording.Open([]string{writeFile(t, "last", line(1, "last")), dir}, nil)
	must.Succeed(t, err)
	if got, want := values(readFiles(t, f)), []string{"last", "first", "second", "third"}; !slices.Equal(got, want) {
		t.Errorf("read %q, want %q", got, want)
	}
}

func TestFilesReturnTheNotesOfRecorders(t *testing.T) {
	note, other := recording.RecorderNote{Sample: .1, Secret: "0123"}, recording.RecorderNote{Sample: .1, Secret: "4567"}
	one := line(1, "a") + "\n"
	noted := string(recording.AppendNote(nil, start, note)) + one
	both := noted + string(recording.AppendNote(nil, start, other)) + one
	for name, tt := range map[string]struct {
		files []string
		want  []recording.RecorderNote
	}{
		"each note once":            {[]string{noted, one, noted}, []recording.RecorderNote{note, {Sample: 1}}},
		"several notes in one file": {[]string{both}, []recording.RecorderNote{note, other}},
		"lines before a note":       {[]string{one + noted}, []recording.RecorderNote{{Sample: 1}, note}},
		"an empty file":             {[]string{noted, ""}, []recording.RecorderNote{note}},
		"a file with only a note":   {[]string{string(recording.AppendNote(nil, start, note))}, []recording.RecorderNote{note}},
	} {
		t.Run(name, func(t *testing.T) {
			var paths []string
			for i, text := range tt.files {
				paths = append(paths, writeFile(t, fmt.Sprint(i), text))
			}
			f, err := recording.Open(paths, nil)
			must.Succeed(t, err)
			if before := f.Notes(); !slices.Equal(before, tt.want) {
				t.Errorf("before the lines: %+v, want %+v", before, tt.want)
			}
			readFiles(t, f)
			if got := f.Notes(); !slices.Equal(got, tt.want) {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
		})
	}
}

// Only the path - is standard input.
func TestFileNamedAsStandardInputIsRead(t *testing.T) {
	t.Chdir(t.TempDir())
	must.Write(t, "-", line(1, "file"))
	f, err := recording.Open([]string{"./-", "-"}, strings.NewReader(line(2, "stdin")))
	must.Succeed(t, err)
	if got := readFiles(t, f); len(got) != 2 {
		t.Errorf("%v, want a line of the file and one of standard input", got)
	}
}

// Hundreds of rotated files may be open in turn: of those that are not due, none is open.
func TestFilesNotDueAreClosed(t *testing.T) {
	dir := t.TempDir()
	var paths []string
	for i := range 300 {
		paths = append(paths, filepath.Join(dir, string(rune('a'+i%26))+strings.Repeat("x", i/26)))
		must.Write(t, paths[i], compress(t, line(2*i, "a")+"\n"+line(2*i+1, "b")))
	}
	f, err := recording.Open(paths, nil)
	must.Succeed(t, err)
	open, err := os.ReadDir("/proc/self/fd")
	if err == nil && len(open) > 150 {
		t.Errorf("%d files are open", len(open))
	}
	if n := len(readFiles(t, f)); n != 600 {
		t.Errorf("read %d lines, want 600", n)
	}
}
