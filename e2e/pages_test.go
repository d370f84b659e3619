package e2e_test

import (
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
)

// A docStep is a block of commands on a page, their output and their exit code. Without output, the
// page shows none.
type docStep struct {
	commands, output string
	code             int
}

// A docPage holds the code blocks of a page: its steps, and the other blocks by their first lines,
// such as "yaml rules.yaml".
type docPage struct {
	steps []docStep
	named map[string]string
}

var codeBlock = regexp.MustCompile("(?ms)^```([^\n]*)\n(.*?)^```$")

// readPage reads a page of docs/.
func readPage(t *testing.T, name string) docPage {
	t.Helper()
	return readBlocks(string(must.Read(t, "../docs/"+name)))
}

// readBlocks reads the code blocks of a text.
func readBlocks(text string) docPage {
	p := docPage{named: map[string]string{}}
	for _, b := range codeBlock.FindAllStringSubmatch(text, -1) {
		code, isExit := strings.CutPrefix(b[1], "sh exit-")
		switch {
		case b[1] == "text" && len(p.steps) > 0:
			p.steps[len(p.steps)-1].output = b[2]
		case b[1] == "sh" || isExit:
			number, _ := strconv.Atoi(code) // "sh" is 0
			p.steps = append(p.steps, docStep{commands: b[2], code: number})
		default:
			p.named[b[1]] = b[2]
		}
	}
	return p
}

// bash runs a script in a folder, and returns what it prints and its exit code.
func bash(t *testing.T, dir, script string) (string, int) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "bash", "-c", script)
	c.Dir = dir
	out, err := c.CombinedOutput()
	if c.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), c.ProcessState.ExitCode()
}
