package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

func git(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

// refuseDirty returns an error if the tree differs from its commit.
func refuseDirty(ctx context.Context, root string) error {
	status, err := git(ctx, root, "status", "--porcelain", "--untracked-files=all")
	if err != nil || status == "" {
		return err
	}
	first, more, _ := strings.Cut(strings.TrimRight(status, "\n"), "\n")
	if more != "" {
		first += fmt.Sprintf(" and %d more", strings.Count(more, "\n")+1)
	}
	return fmt.Errorf("the tree differs from its commit (%s): commit or remove the changes, because a release is built from a commit",
		strings.TrimSpace(first))
}

// reproduce builds the commit in two clones at different depths and compares the digests of all
// files. With cold, the second build has an empty build cache. The first result becomes o.out.
func reproduce(ctx context.Context, o options, cold bool, report io.Writer) error {
	if err := refuseDirty(ctx, o.root); err != nil {
		return err
	}
	root, err := filepath.Abs(o.root)
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "weir-verify-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	outs := []string{o.out, filepath.Join(temp, "second")}
	for i, folder := range []string{"a", "b/deeper/and deeper"} {
		one := o
		one.root, one.out = filepath.Join(temp, folder), outs[i]
		if _, err := git(ctx, root, "clone", "-q", root, one.root); err != nil {
			return err
		}
		if i == 1 && cold {
			if err := os.Setenv("GOCACHE", filepath.Join(temp, "cache")); err != nil {
				return err
			}
		}
		if err := release(ctx, one, io.Discard); err != nil {
			return err
		}
	}
	first, err := digests(outs[0])
	if err != nil {
		return err
	}
	second, err := digests(outs[1])
	if err != nil {
		return err
	}
	if first.String() != second.String() {
		return fmt.Errorf("two builds of one commit differ:\n%s\n%s", first, second)
	}
	_, err = fmt.Fprintf(report, "%d files are equal in two builds:\n%s", len(first), first)
	return err
}

// push pushes the only index of a layout, and prints its reference with its digest.
func push(ctx context.Context, dir, repository string, report io.Writer) error {
	all, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return err
	}
	manifest, err := all.IndexManifest()
	if err != nil {
		return err
	}
	if len(manifest.Manifests) != 1 {
		return errors.New(dir + " must have one index, as written by make release")
	}
	entry := manifest.Manifests[0]
	tag, err := name.NewTag(repository + ":" + entry.Annotations["org.opencontainers.image.ref.name"])
	if err != nil {
		return err
	}
	index, err := all.ImageIndex(entry.Digest)
	if err != nil {
		return err
	}
	if err := remote.WriteIndex(tag, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return err
	}
	_, err = fmt.Fprintln(report, tag.Digest(entry.Digest.String()))
	return err
}
