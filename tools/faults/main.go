// Command faults checks the test suite. It seeds each fault of faults.txt into the code, one at a time, runs the tests
// of the package with the fault and of pkg/limiters, and expects them to fail. It uses an overlay of go test and does not change the tree.
package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

//go:embed faults.txt
var list string

// tested are the packages whose tests may detect a fault in another package.
const tested = "./pkg/limiters/..."

type fault struct{ what, file, old, new string }

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(1)
	}
}

func run() error {
	only := flag.String("run", "", "a regular expression: seed only faults whose file or description matches")
	flag.Parse()
	wanted, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	faults, err := parse(list)
	if err != nil {
		return err
	}
	faults = slices.DeleteFunc(faults, func(f fault) bool { return !wanted.MatchString(f.file + ": " + f.what) })
	dir, err := os.MkdirTemp("", "faults")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	args := []string{"test", tested}
	for _, f := range faults {
		if near := f.beside(); !slices.Contains(args, near) {
			args = append(args, near)
		}
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("the tests fail as it is: %s", out)
	}
	unseen := 0
	for i, f := range faults {
		seen, err := f.seen(dir)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", f.file, f.what, err)
		}
		verdict := "seen  "
		if !seen {
			verdict = "UNSEEN"
			unseen++
		}
		fmt.Printf("%2d/%d %s %s: %s\n", i+1, len(faults), verdict, f.file, f.what)
	}
	if unseen > 0 {
		return fmt.Errorf("%d faults passed the suite", unseen)
	}
	return nil
}

// parse reads paragraphs: a comment, a file, the lines to replace and as many replacement lines.
func parse(text string) ([]fault, error) {
	var faults []fault
	for _, paragraph := range strings.Split(text, "\n\n") {
		lines := strings.Split(strings.TrimRight(paragraph, "\n"), "\n")
		what := ""
		for len(lines) > 0 && strings.HasPrefix(lines[0], "#") {
			what, lines = strings.TrimPrefix(lines[0], "# "), lines[1:]
		}
		if len(lines) == 0 {
			continue
		}
		f := fault{what: what, file: lines[0]}
		body := lines[1:]
		half := (len(body) + 1) / 2
		f.old, f.new = strings.Join(body[:half], "\n"), strings.Join(body[half:], "\n")
		if len(body) < 2 {
			return nil, fmt.Errorf("%s: want what is there and what to put in its place", what)
		}
		faults = append(faults, f)
	}
	return faults, nil
}

// seeded returns the file with the fault in it.
func (f fault) seeded(root string) (string, error) {
	source, err := os.ReadFile(filepath.Join(root, f.file))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(source), f.old); n != 1 {
		return "", fmt.Errorf("%q is there %d times, want once", f.old, n)
	}
	return strings.Replace(string(source), f.old, f.new, 1), nil
}

// seen reports if the tests fail with the fault in the code.
func (f fault) seen(dir string) (bool, error) {
	path, err := filepath.Abs(f.file)
	if err != nil {
		return false, err
	}
	source, err := f.seeded(".")
	if err != nil {
		return false, err
	}
	faulty := filepath.Join(dir, "faulty")
	if err := os.WriteFile(faulty, []byte(source), 0o600); err != nil {
		return false, err
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: faulty}})
	if err != nil {
		return false, err
	}
	overlayFile := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlayFile, overlay, 0o600); err != nil {
		return false, err
	}
	if out, err := exec.Command("go", "vet", "-overlay", overlayFile, tested, f.beside()).CombinedOutput(); err != nil {
		return false, fmt.Errorf("the fault does not compile: %s", out)
	}
	// The tests nearest to a fault detect most faults, in less time than all tests.
	for _, tests := range []string{f.beside(), tested} {
		err := exec.Command("go", "test", "-overlay", overlayFile, "-failfast", tests).Run()
		var failed *exec.ExitError
		if err != nil && !errors.As(err, &failed) {
			return false, err
		}
		if err != nil {
			return true, nil
		}
	}
	return false, nil
}

// beside returns the package with the tests nearest to a fault.
func (f fault) beside() string {
	switch dir := filepath.ToSlash(filepath.Dir(f.file)); dir {
	case "pkg/limiters", "pkg/redisscripts":
		return "./pkg/limiters/limiterstest" // checks the core against traces and models
	default:
		return "./" + dir
	}
}
