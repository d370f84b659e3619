// Command faults checks the test suite. It puts each mutation of faults.txt into the code, one at a
// time, and expects a test to fail. It runs the test that faults.txt names, then the tests nearest
// to the mutation, then those of pkg/limiters. It prints the test that failed, because on a busy
// machine a test can also fail by a timeout. It uses an overlay of go test and does not change the
// tree.
package main

import (
	"bytes"
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
	"time"
)

//go:embed faults.txt
var list string

const module = "github.com/weir-rls/weir"

// tested are the packages whose tests may detect a mutation in another package.
const tested = "./pkg/limiters/..."

// errNotBuilt is the error of a mutation that is not valid Go.
var errNotBuilt = errors.New("the mutation does not compile")

// A mutation can make a test wait forever, and the servers of a test that was ended can keep its
// output open.
const (
	maxTestTime  = time.Minute // for the test that faults.txt names; if go test ends it, the mutation is detected
	maxTestsTime = 4 * time.Minute
	maxOpen      = 10 * time.Second
)

type mutation struct {
	what, file, old, new string
	seenBy               testName // zero if faults.txt names no test
}

// testName is a test, or a subtest, of a package, such as ./pkg/decide TestA/b.
type testName struct{ dir, name string }

func (t testName) String() string { return strings.TrimSpace(t.dir + " " + t.name) }

// args returns the arguments of go test that run only this test.
func (t testName) args() []string {
	parts := strings.Split(t.name, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return []string{fmt.Sprintf("-timeout=%s", maxTestTime), "-run=" + strings.Join(parts, "/"), t.dir}
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(1)
	}
}

func run() error {
	only := flag.String("run", "", "a regular expression: apply only mutations whose file or description matches")
	outside := flag.Bool("outside", false, "build Weir with each mutation, and run weir conform against it instead of the tests")
	flag.Parse()
	wanted, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	mutations, err := parse(list)
	if err != nil {
		return err
	}
	mutations = slices.DeleteFunc(mutations, func(m mutation) bool { return !wanted.MatchString(m.file + ": " + m.what) })
	dir, err := os.MkdirTemp("", "faults")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	detect := mutation.failedTest
	if *outside {
		detect = mutation.failedConformCheck
	} else if err := passes(mutations); err != nil {
		return err
	}
	unseen, broken := 0, 0
	for i, m := range mutations {
		by, err := detect(m, dir)
		verdict := "seen  "
		switch {
		case errors.Is(err, errNotBuilt):
			verdict = "BROKEN"
			broken++
			fmt.Fprintln(os.Stderr, err)
		case err != nil:
			return fmt.Errorf("%s: %s: %w", m.file, m.what, err)
		case by == "":
			verdict = "UNSEEN"
			unseen++
		case m.seenBy.name != "" && by != m.seenBy.String():
			by += " instead of " + m.seenBy.String()
		}
		fmt.Printf("%2d/%d %s %s: %s  %s\n", i+1, len(mutations), verdict, m.file, m.what, by)
	}
	if unseen+broken > 0 {
		return fmt.Errorf("%d mutations passed the suite, and %d do not compile", unseen, broken)
	}
	return nil
}

// passes returns an error if the tests fail without a mutation.
func passes(mutations []mutation) error {
	args := []string{"test", tested}
	for _, m := range mutations {
		if dir := m.dir(); !slices.Contains(args, dir) {
			args = append(args, dir)
		}
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("the tests fail without a mutation: %s", out)
	}
	return nil
}

const seenByPrefix = "# seen by "

// parse reads paragraphs: a description, if known the test that sees the mutation, a file, the
// lines to replace and as many replacement lines.
func parse(text string) ([]mutation, error) {
	var mutations []mutation
	for _, paragraph := range strings.Split(text, "\n\n") {
		lines := strings.Split(strings.TrimRight(paragraph, "\n"), "\n")
		var m mutation
		for len(lines) > 0 && strings.HasPrefix(lines[0], "#") {
			if test, ok := strings.CutPrefix(lines[0], seenByPrefix); ok {
				m.seenBy.dir, m.seenBy.name, _ = strings.Cut(test, " ")
			} else {
				m.what = strings.TrimPrefix(lines[0], "# ")
			}
			lines = lines[1:]
		}
		if len(lines) == 0 {
			continue
		}
		m.file = lines[0]
		body := lines[1:]
		if len(body) < 2 || len(body)%2 != 0 {
			return nil, fmt.Errorf("%s: want the lines to replace, and as many lines of their replacement", m.what)
		}
		half := len(body) / 2
		m.old, m.new = strings.Join(body[:half], "\n"), strings.Join(body[half:], "\n")
		mutations = append(mutations, m)
	}
	return mutations, nil
}

// apply returns the file with the mutation in it.
func (m mutation) apply(root string) (string, error) {
	source, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(source), m.old); n != 1 {
		return "", fmt.Errorf("the lines to replace occur %d times, want once: %q", n, m.old)
	}
	return strings.Replace(string(source), m.old, m.new, 1), nil
}

// overlay writes the mutated file, and returns the overlay of the go command that puts it in place
// of the original.
func (m mutation) overlay(dir string) (string, error) {
	path, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	source, err := m.apply(".")
	if err != nil {
		return "", err
	}
	faulty := filepath.Join(dir, "faulty")
	if err := os.WriteFile(faulty, []byte(source), 0o600); err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: faulty}})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, overlay, 0o600)
}

// failedConformCheck returns the first check of weir conform that fails against a Weir with the
// mutation: on Redis for a script, else in memory. It returns "" if all pass.
func (m mutation) failedConformCheck(dir string) (string, error) {
	overlay, err := m.overlay(dir)
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "weir")
	if out, err := exec.Command("go", "build", "-overlay", overlay, "-o", binary, "./cmd/server").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", errNotBuilt, out)
	}
	store := "memory"
	if m.dir() == "./pkg/redisscripts" {
		store = "redis"
	}
	if err := os.Setenv("WEIR", binary); err != nil {
		return "", err
	}
	return failedTest("-count=1", "-run=TestWeirConforms/"+store, "./e2e/conform",
		"-only=^(protocol|semantics|counting|turns|crash)") // the checks of clients need a machine with nothing else to do
}

// failedTest returns the test that fails with the mutation in the code, or "" if all pass.
func (m mutation) failedTest(dir string) (string, error) {
	overlayFile, err := m.overlay(dir)
	if err != nil {
		return "", err
	}
	// One test, and the tests nearest to a mutation, need less time than all tests.
	tries := [][]string{m.nearest(), {tested}}
	if m.seenBy.name != "" {
		tries = slices.Insert(tries, 0, m.seenBy.args())
	}
	for _, tests := range tries {
		if by, err := failedTest(append([]string{"-overlay", overlayFile, "-failfast"}, tests...)...); by != "" || err != nil {
			return by, err
		}
	}
	return "", nil
}

var (
	failure       = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)|^(panic: .*|WARNING: DATA RACE)`)
	failedPackage = regexp.MustCompile(`(?m)^FAIL\s+(\S+)\s+[0-9.]+s$`)
)

// failedTest runs go test, and returns the first test that fails, or "". The error is errNotBuilt
// if the tests do not compile.
func failedTest(args ...string) (string, error) {
	tests := exec.Command("go", append([]string{"test", "-vet=off", fmt.Sprintf("-timeout=%s", maxTestsTime)}, args...)...)
	tests.WaitDelay = maxOpen
	out, err := tests.CombinedOutput()
	var failed *exec.ExitError
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return "", nil
	case !errors.As(err, &failed):
		return "", err
	case bytes.Contains(out, []byte("[build failed]")):
		return "", fmt.Errorf("%w: %s", errNotBuilt, out)
	}
	return firstFailure(string(out)), nil
}

// firstFailure returns the package and the name of the first test that failed, down to its first
// subtest that failed.
func firstFailure(out string) string {
	failures := failure.FindAllStringSubmatch(out, -1)
	if failures == nil {
		return "a test binary that ended early"
	}
	if failures[0][1] == "" {
		return failures[0][2] // a panic
	}
	name := failures[0][1]
	for _, f := range failures[1:] {
		if strings.HasPrefix(f[1], name+"/") {
			name = f[1]
		}
	}
	if p := failedPackage.FindStringSubmatch(out); p != nil {
		return "." + strings.TrimPrefix(p[1], module) + " " + name
	}
	return name
}

// dir returns the package of the mutation.
func (m mutation) dir() string { return "./" + filepath.ToSlash(filepath.Dir(m.file)) }

// nearest returns the arguments that run the tests nearest to the mutation.
func (m mutation) nearest() []string {
	switch dir := m.dir(); dir {
	case "./pkg/limiters":
		return []string{"./pkg/limiters/limiterstest"} // checks the core against traces and models
	case "./pkg/redisscripts":
		return []string{"-run=Reference|TestStorePassesTheSuite", "./pkg/limiters/redisstore"} // compares the scripts with the core
	default:
		return []string{dir}
	}
}
