package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/klauspost/compress/zstd"

	"github.com/weir-rls/weir/internal/atomicfile"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/descriptors/sources"
)

// readBounded reads at most maximum bytes. The error for a longer input contains the name and the
// remedy.
func readBounded(from io.Reader, name string, maximum int64, remedy string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(from, maximum+1))
	switch {
	case errors.As(err, new(*fs.PathError)): // it has the name
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", name, err)
	case int64(len(data)) > maximum:
		return nil, fmt.Errorf("%s has more than %d bytes: %s", name, maximum, remedy)
	}
	return data, nil
}

// readFile is readBounded for a file.
func readFile(path string, maximum int64, remedy string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, ReadError(err)
	}
	defer func() { _ = file.Close() }()
	return readBounded(file, path, maximum, remedy)
}

// readNamed reads a file, or standard input for -, and returns its name. The bound and the remedy
// are those of readBounded.
func readNamed(path string, stdin io.Reader, maximum int64, remedy string) (name string, data []byte, err error) {
	if path == "-" {
		data, err = readBounded(stdin, "standard input", maximum, remedy)
		return "standard input", data, err
	}
	data, err = readFile(path, maximum, remedy)
	return path, data, err
}

// writeFile creates a file and calls write. It reports all errors, including that of Close. After
// an error it removes the file, unless it is a link or a device.
func writeFile(name string, flags int, write func(io.Writer) error) error {
	file, err := os.OpenFile(name, os.O_WRONLY|flags, 0o644)
	if err != nil {
		return withRemedy(err, "write", "create the folder, or correct the path")
	}
	err = errors.Join(write(file), file.Close())
	if info, missing := os.Lstat(name); err != nil && missing == nil && info.Mode().IsRegular() {
		_ = os.Remove(name)
	}
	return err
}

// writeAtomically is [atomicfile.Write], but replaces only a regular file.
func writeAtomically(path string, write func(io.Writer) error) error {
	if err := checkWritable(path); err != nil {
		return err
	}
	return withRemedy(atomicfile.Write(path, write), "write", "create the folder, or correct the path")
}

// checkWritable reports early whether [writeAtomically] would fail for path.
func checkWritable(path string) error {
	if info, err := os.Lstat(path); err == nil && info.IsDir() {
		return fmt.Errorf("%s is a folder: name a file in it", path)
	} else if err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file: name a file", path)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
		return fmt.Errorf("the folder %s does not exist: create it first", filepath.Dir(path))
	}
	return nil
}

// checkNoInput returns an error if output is one of the files that a command reads, or looks like a
// file of one of the folders that it reads.
func checkNoInput(output string, inputs ...string) error {
	out, err := os.Stat(output)
	if err != nil {
		return nil // a new file
	}
	folder, err := os.Stat(filepath.Dir(output))
	mayBeRead := err == nil && slices.Contains([]string{".yaml", ".yml", ".ndjson", ".zst"}, filepath.Ext(output))
	for _, input := range inputs {
		in, err := os.Stat(input)
		if input == "-" || err != nil {
			continue
		}
		switch {
		case os.SameFile(in, out):
			return fmt.Errorf("%s is the input %s: write to another file", output, input)
		case mayBeRead && os.SameFile(in, folder):
			return fmt.Errorf("%s is in the folder %s, which is an input: write to another folder", output, input)
		}
	}
	return nil
}

// writeRecording is [writeAtomically] for a recording, which is compressed if its name ends with
// .zst.
func writeRecording(path string, write func(io.Writer) error) error {
	if !strings.HasSuffix(path, ".zst") {
		return writeAtomically(path, write)
	}
	return writeAtomically(path, func(w io.Writer) error {
		encoder, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
		if err != nil {
			return err
		}
		return cmp.Or(write(encoder), encoder.Close())
	})
}

// A fileError is a file's error with a remedy.
type fileError struct {
	text string
	err  error
}

func (e *fileError) Error() string { return e.text }
func (e *fileError) Unwrap() error { return e.err }

// ReadError adds a remedy to the error of reading a file or folder. It returns other errors, and
// nil, unchanged.
func ReadError(err error) error { return withRemedy(err, "read", "correct the path") }

// withRemedy adds the remedy for a failed verb, which is read or write, to the error of a file.
func withRemedy(err error, verb, correct string) error {
	var done *fileError
	if err == nil || errors.As(err, &done) {
		return err
	}
	text := err.Error()
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		// The name of the system call does not help a user.
		text = strings.Replace(text, path.Error(), fmt.Sprintf("%s %s: %v", verb, path.Path, path.Err), 1)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
		text += ": " + correct
	case errors.Is(err, fs.ErrPermission):
		text += ": run weir as a user that may " + verb + " it"
	case errors.Is(err, syscall.EISDIR):
		text += ": name a file"
	default:
		return err
	}
	return &fileError{text, err}
}

// rulesFlags are the flags of commands that read rules as the server does.
type rulesFlags struct {
	Config       []string `sep:"none" placeholder:"FILE|DIR" help:"The rules: a YAML file or a folder of YAML files. - is standard input. May be repeated."`
	rulesOptions `embed:""`
}

// rulesOptions say how rules are read.
type rulesOptions struct {
	Overlay string `env:"CONFIG_OVERLAY" placeholder:"FILE|DIR" help:"The overlay of the rules."`
	Merge   bool   `env:"MERGE_DOMAIN_CONFIG" name:"merge-domain-config" help:"Accept several files with the same domain, and merge their rules."`
	Months  bool   `env:"USE_CALENDAR_MONTH_RATE_LIMIT" name:"use-calendar-month-rate-limit" help:"Make the unit month a calendar month in UTC instead of 30 days."`
}

// allOrNothingFlag is the setting of the server that becomes [decide.Options.AllOrNothing].
type allOrNothingFlag struct {
	AllOrNothing bool `env:"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT" name:"stop-cache-key-increment-when-overlimit" help:"If one limit denies a request, charge none of the others, as the server does with this setting."`
}

// An input is an argument of a command that may be standard input.
type input struct {
	name  string // in the plural if there may be several paths
	paths []string
}

// onlyOneStdin returns an error if more than one path is standard input.
func onlyOneStdin(inputs ...input) error {
	first := ""
	for _, in := range inputs {
		for _, path := range in.paths {
			switch {
			case path != "-":
			case first == "":
				first = in.name
			case first == in.name:
				return fmt.Errorf("only one of %s can be standard input: name files for the others", first)
			default:
				return fmt.Errorf("%s and %s cannot both be standard input: name a file for one of them", first, in.name)
			}
		}
	}
	return nil
}

// checkStdin is [onlyOneStdin] for the rules, the overlay and others.
func (o *rulesOptions) checkStdin(rules []string, others ...input) error {
	return onlyOneStdin(append([]input{{"the rules", rules}, {"the overlay", []string{o.Overlay}}}, others...)...)
}

// load reads the rules and the overlay. The error names file, line and remedy.
func (f *rulesFlags) load(stdin io.Reader) (*descriptors.Rules, error) {
	overlay, err := readOverlay(stdin, f.Overlay)
	if err != nil {
		return nil, err
	}
	return f.loadWith(overlay, stdin, f.Config...)
}

// loadWith reads the rules at other paths. The overlay may be nil.
func (o *rulesOptions) loadWith(overlay *rulesfile.Overlay, stdin io.Reader, paths ...string) (*descriptors.Rules, error) {
	files, err := readRules(stdin, paths...)
	if err != nil {
		return nil, err
	}
	options := rulesfile.Options{MergeDomains: o.Merge, CalendarMonths: o.Months, Overlay: overlay}
	rules, _, err := rulesfile.ParseWith(options, files...)
	return rules, err
}

// readOverlay reads an overlay. Without a path it returns nil.
func readOverlay(stdin io.Reader, path string) (*rulesfile.Overlay, error) {
	if path == "" {
		return nil, nil
	}
	files, err := readRules(stdin, path)
	if err != nil {
		return nil, err
	}
	return rulesfile.ParseOverlay(files...)
}

// readRules reads files, folders, and standard input for the path "-". The names of files in a
// folder begin with its path.
func readRules(stdin io.Reader, paths ...string) (all []rulesfile.File, err error) {
	for _, path := range paths {
		if path == "-" {
			data, err := readBounded(stdin, "standard input", sources.MaxFileBytes, "split the rules into several files")
			if err != nil {
				return nil, err
			}
			all = append(all, rulesfile.File{Name: "stdin", Data: data})
			continue
		}
		files, err := sources.Read(path)
		if err != nil {
			return nil, ReadError(err)
		}
		all = append(all, files...)
	}
	return all, nil
}
