package containers_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/moby/moby/api/types/build"
	"github.com/moby/moby/client"
)

// An image is a name that the daemon knows, with the path of its program.
type image struct{ name, program string }

// pullTimeout bounds a pull. A registry that needs longer counts as unreachable.
const pullTimeout = 2 * time.Minute

// makeImages makes every image that the tests use, and returns a function that removes them.
func makeImages(ctx context.Context) (done func(), err error) {
	temp, err := os.MkdirTemp("", "weir-containers-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	if images.weir, err = loadWeir(ctx, temp); err != nil {
		return nil, fmt.Errorf("image of weir: %w", err)
	}
	if images.gateway, err = buildGateway(ctx, temp); err != nil {
		return nil, fmt.Errorf("image of the control plane: %w", err)
	}
	images.redis, err = findPullOrBuild(ctx, "redis:7", os.Getenv("REDIS_SERVER"), "/usr/local/bin/redis-server")
	if err != nil {
		return nil, err
	}
	images.envoy, err = findPullOrBuild(ctx, "envoyproxy/envoy:v1.40.0", os.Getenv("ENVOY"), "/usr/local/bin/envoy")
	if err != nil {
		return nil, err
	}
	if binary := os.Getenv("INCUMBENT"); binary != "" {
		if images.incumbent, err = buildFrom(ctx, binary, "/bin/ratelimit"); err != nil {
			return nil, err
		}
	}
	return func() {
		for _, one := range []image{images.weir, images.gateway} {
			_, _ = docker.ImageRemove(context.Background(), one.name, client.ImageRemoveOptions{})
		}
	}, nil
}

// loadWeir builds the image of this tree like make image, and loads it.
func loadWeir(ctx context.Context, temp string) (image, error) {
	const name = "weir-e2e"
	tag := fmt.Sprint(os.Getpid())
	dist, err := filepath.Abs(filepath.Join(temp, "dist"))
	if err != nil {
		return image{}, err
	}
	cmd := exec.CommandContext(ctx, "go", "run", ".", "-root=../..", "-out="+dist, "-name="+name, "-tag="+tag, "-arch="+runtime.GOARCH)
	cmd.Dir = filepath.Join("..", "..", "tools", "image")
	if out, err := cmd.CombinedOutput(); err != nil {
		return image{}, fmt.Errorf("%w\n%s", err, out)
	}
	f, err := os.Open(filepath.Join(dist, "weir-linux-"+runtime.GOARCH+".tar"))
	if err != nil {
		return image{}, err
	}
	defer f.Close()
	loaded, err := docker.ImageLoad(ctx, f)
	if err != nil {
		return image{}, err
	}
	defer loaded.Close()
	if err := failed(loaded); err != nil {
		return image{}, err
	}
	return image{name + ":" + tag, "/bin/weir"}, nil
}

func buildGateway(ctx context.Context, temp string) (image, error) {
	binary := filepath.Join(temp, "envoy-gateway")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", binary, "./envoygateway/serve")
	cmd.Dir = filepath.Join("..", "xds")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	if out, err := cmd.CombinedOutput(); err != nil {
		return image{}, fmt.Errorf("%w\n%s", err, out)
	}
	return buildFrom(ctx, binary, "/bin/envoy-gateway")
}

// findPullOrBuild returns the public image if it is present or can be pulled. Otherwise it builds
// one from the local binary that tools/ensure found or installed. It logs which.
func findPullOrBuild(ctx context.Context, public, binary, program string) (image, error) {
	say := func(what string) { fmt.Fprintf(os.Stderr, "containers: %s %s\n", public, what) }
	if _, err := docker.ImageInspect(ctx, public); err == nil {
		say("is here")
		return image{public, program}, nil
	}
	if os.Getenv("PULL") != "0" {
		err := pull(ctx, public)
		if err == nil {
			say("is pulled")
			return image{public, program}, nil
		}
		say("cannot be pulled: " + err.Error())
	}
	if binary == "" {
		return image{}, fmt.Errorf("neither the image %s nor a binary to make one of", public)
	}
	built, err := buildFrom(ctx, binary, program)
	if err != nil {
		return image{}, err
	}
	say("is in " + built.name + ", made of " + binary)
	return built, nil
}

func pull(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	progress, err := docker.ImagePull(ctx, name, client.ImagePullOptions{})
	if err != nil {
		return err
	}
	defer progress.Close()
	return failed(progress)
}

// library matches the path in a line of ldd: "libc.so.6 => /lib/libc.so.6 (0x7f)" or
// "/lib64/ld-linux.so.2 (0x7f)".
var library = regexp.MustCompile(`^\s*(?:\S+ => )?(/\S+) \(0x`)

// buildFrom makes an image of a binary and its libraries. The name is a hash of the content, and an
// existing image is reused.
func buildFrom(ctx context.Context, binary, program string) (image, error) {
	files := map[string][]byte{}
	add := func(name, path string) error {
		data, err := os.ReadFile(path)
		files[strings.TrimPrefix(name, "/")] = data
		return err
	}
	if err := add(program, binary); err != nil {
		return image{}, err
	}
	// ldd fails on a static program, which needs no libraries.
	needs, _ := exec.CommandContext(ctx, "ldd", binary).Output()
	for line := range strings.Lines(string(needs)) {
		if path := library.FindStringSubmatch(line); path != nil {
			if err := add(path[1], path[1]); err != nil {
				return image{}, err
			}
		}
	}
	files["Dockerfile"] = fmt.Appendf(nil, "FROM scratch\nCOPY . /\nENTRYPOINT [%q]\n", program)
	files[".dockerignore"] = []byte("Dockerfile\n.dockerignore\n")
	archive, err := pack(files)
	if err != nil {
		return image{}, err
	}
	made := image{fmt.Sprintf("weir-e2e-%s:%x", filepath.Base(program), sha256.Sum256(archive)), program}
	made.name = made.name[:strings.Index(made.name, ":")+13]
	if _, err := docker.ImageInspect(ctx, made.name); err == nil {
		return made, nil
	}
	result, err := docker.ImageBuild(ctx, bytes.NewReader(archive), client.ImageBuildOptions{
		Tags: []string{made.name}, Remove: true, ForceRemove: true, Version: build.BuilderV1,
	})
	if err != nil {
		return image{}, fmt.Errorf("image of %s: %w", binary, err)
	}
	defer result.Body.Close()
	return made, failed(result.Body)
}

// pack returns the same bytes for the same files.
func pack(files map[string][]byte) ([]byte, error) {
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, name := range names {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(files[name]))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(files[name]); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return archive.Bytes(), err
}

// failed reads the daemon's progress to its end and returns the error in it, if any.
func failed(progress io.Reader) error {
	decoder := json.NewDecoder(progress)
	for {
		var one struct{ Error string }
		switch err := decoder.Decode(&one); {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case one.Error != "":
			return fmt.Errorf("the daemon says: %s", one.Error)
		}
	}
}
