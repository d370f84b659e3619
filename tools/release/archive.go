package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/weir-rls/weir/tools/image/oci"
)

// A file is an entry of an archive.
type file struct {
	name string
	mode int64
	data []byte
}

// writeTar writes files in their order, each with the date of the commit and without an owner.
func writeTar(to io.Writer, date time.Time, files []file) error {
	w := tar.NewWriter(to)
	for _, f := range files {
		h := tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: date, Format: tar.FormatUSTAR}
		if err := w.WriteHeader(&h); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		if _, err := w.Write(f.data); err != nil {
			return err
		}
	}
	return w.Close()
}

func writeTarGz(path string, date time.Time, files []file) error {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if err := writeTar(w, date, files); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}

// writeBinary writes the archive of one binary, and its bill of materials.
func writeBinary(o options, b *oci.Build) error {
	stem := "weir-" + b.Version + "-" + b.OS + "-" + b.Arch
	files := []file{{stem + "/weir", 0o755, b.Binary}}
	for _, name := range []string{"LICENSE", "README.md"} {
		data, err := os.ReadFile(filepath.Join(o.root, name))
		if err != nil {
			return err
		}
		files = append(files, file{stem + "/" + name, 0o644, data})
	}
	if err := writeTarGz(filepath.Join(o.out, stem+".tar.gz"), b.Date, files); err != nil {
		return err
	}
	bill, err := oci.BillOfMaterials(b, nil)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.out, stem+".cdx.json"), bill, 0o644)
}

// writeImages writes the images of the builds for linux.
func writeImages(o options, builds []*oci.Build, temp string) error {
	var linux []*oci.Build
	for _, b := range builds {
		if b.OS == "linux" {
			linux = append(linux, b)
		}
	}
	if len(linux) == 0 {
		return nil
	}
	dir := filepath.Join(temp, "images")
	if err := oci.Write(oci.Options{Out: dir, Name: o.name}, linux, io.Discard); err != nil {
		return err
	}
	stem := filepath.Join(o.out, "weir-"+linux[0].Version+"-image")
	for _, b := range linux {
		for _, ending := range []string{".tar", ".cdx.json"} {
			name := "linux-" + b.Arch + ending
			data, err := os.ReadFile(filepath.Join(dir, "weir-"+name))
			if err != nil {
				return err
			}
			if err := os.WriteFile(stem+"-"+name, data, 0o644); err != nil {
				return err
			}
		}
	}
	var files []file
	layout := os.DirFS(filepath.Join(dir, "oci"))
	err := fs.WalkDir(layout, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(layout, path)
		files = append(files, file{path, 0o644, data})
		return err
	})
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := writeTar(&out, linux[0].Date, files); err != nil {
		return err
	}
	return os.WriteFile(stem+".oci.tar", out.Bytes(), 0o644)
}

const chartFolder = "deploy/helm/weir"

// writeChart writes the chart with the version of the release and the published image.
func writeChart(ctx context.Context, o options, b *oci.Build) error {
	version := strings.TrimPrefix(b.Version, "v")
	edits := map[string][][2]string{
		"Chart.yaml": {
			{`(?m)^version: .*$`, "version: " + version},
			{`(?m)^appVersion: .*$`, "appVersion: " + b.Tag()},
			{`(?m)^( *)image: ghcr\.io/weir-rls/weir:.*$`, "${1}image: " + o.name + ":" + b.Tag()},
			{`(?m)^  artifacthub.io/prerelease: .*$`, fmt.Sprintf("  artifacthub.io/prerelease: %q", fmt.Sprint(strings.Contains(version, "-")))},
		},
		"values.yaml": {{`(?m)^  repository: ghcr\.io/weir-rls/weir$`, "  repository: " + o.name}},
	}
	list, err := git(ctx, o.root, "ls-files", "-z", chartFolder)
	if err != nil {
		return err
	}
	var files []file
	for _, name := range strings.Split(strings.Trim(list, "\x00"), "\x00") {
		data, err := os.ReadFile(filepath.Join(o.root, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		inside := strings.TrimPrefix(name, chartFolder+"/")
		for _, e := range edits[inside] {
			line := regexp.MustCompile(e[0])
			if n := len(line.FindAll(data, -1)); n != 1 {
				return fmt.Errorf("%s has %d lines like %s, want one: change the expression in tools/release", name, n, e[0])
			}
			data = line.ReplaceAll(data, []byte(e[1]))
		}
		delete(edits, inside)
		files = append(files, file{path.Join("weir", inside), 0o644, data})
	}
	if len(edits) > 0 {
		return fmt.Errorf("%s lacks Chart.yaml or values.yaml", chartFolder)
	}
	return writeTarGz(filepath.Join(o.out, "weir-"+version+".tgz"), b.Date, files)
}
