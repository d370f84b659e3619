// Package oci builds Weir and its image, without a daemon and without a registry.
package oci

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// A Build is a binary with its build information.
type Build struct {
	Binary   []byte
	Info     *debug.BuildInfo
	OS, Arch string    // in Go's names
	Version  string    // as `weir version` prints it; "(devel)" outside a checkout
	Revision string    // the commit; empty outside a checkout
	Date     time.Time // the commit's date, else $SOURCE_DATE_EPOCH, else 1970
}

// Read reads a binary that Go built.
func Read(path string) (*Build, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return nil, err
	}
	binary, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	b := &Build{Binary: binary, Info: info, Version: info.Main.Version, Date: time.Unix(0, 0).UTC()}
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
		}
		b.Date = time.Unix(seconds, 0).UTC()
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "GOOS":
			b.OS = s.Value
		case "GOARCH":
			b.Arch = s.Value
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			if b.Date, err = time.Parse(time.RFC3339, s.Value); err != nil {
				return nil, fmt.Errorf("vcs.time: %w", err)
			}
		}
	}
	return b, nil
}

// Tag returns the version in the characters that an image tag allows.
func (b *Build) Tag() string {
	if b.Version == "(devel)" {
		return "devel"
	}
	return strings.ReplaceAll(b.Version, "+", "-")
}
