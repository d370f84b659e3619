package main

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// A build is a binary with its build information.
type build struct {
	binary   []byte
	info     *debug.BuildInfo
	arch     string
	version  string    // as `weir version` prints it; "(devel)" outside a checkout
	revision string    // the commit; empty outside a checkout
	date     time.Time // the commit's date, else $SOURCE_DATE_EPOCH, else 1970
}

func readBuild(path string) (*build, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return nil, err
	}
	binary, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	b := &build{binary: binary, info: info, version: info.Main.Version, date: time.Unix(0, 0).UTC()}
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
		}
		b.date = time.Unix(seconds, 0).UTC()
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "GOARCH":
			b.arch = s.Value
		case "vcs.revision":
			b.revision = s.Value
		case "vcs.time":
			if b.date, err = time.Parse(time.RFC3339, s.Value); err != nil {
				return nil, fmt.Errorf("vcs.time: %w", err)
			}
		}
	}
	return b, nil
}

// tag returns the version in the characters that an image tag allows.
func (b *build) tag() string {
	if b.version == "(devel)" {
		return "devel"
	}
	return strings.ReplaceAll(b.version, "+", "-")
}
