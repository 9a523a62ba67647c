// Command authority calls Identity/Probe on a CSI plugin's unix socket in every way in which grpc-go clients dial one.
//
// The ways differ in the HTTP/2 :authority that reaches the server: "localhost", a percent-encoded path, or a raw path.
// A Rust HTTP/2 server refuses the last two unless something repairs them. It prints one line per way and exits with
// status 0 only if every call was answered.
//
//	authority /path/to/csi.sock
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// callTimeout bounds one way, so that a server that never answers fails instead of hanging the run.
const callTimeout = 10 * time.Second

// callsPerWay is more than one because a later call sends :authority as a mere index into the header table.
const callsPerWay = 3

// way is one style of dialling.
type way struct {
	name    string
	target  string
	options []grpc.DialOption
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: authority /path/to/csi.sock")
		os.Exit(2)
	}
	path, err := filepath.Abs(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "authority:", err)
		os.Exit(2)
	}
	failed := false
	for _, w := range ways(path) {
		if err := probe(w); err != nil {
			failed = true
			fmt.Printf("FAIL %s: %v\n", w.name, err)
			continue
		}
		fmt.Printf("ok   %s\n", w.name)
	}
	if failed {
		os.Exit(1)
	}
}

func ways(path string) []way {
	// Dialling by hand is what kubelet does; the target then only names the server, and so becomes :authority.
	dial := grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, "unix", path)
	})
	return []way{
		{name: "unix:///path", target: "unix://" + path},
		{name: "unix:path", target: "unix:" + path},
		{name: "passthrough path with own dialer", target: "passthrough:///" + path, options: []grpc.DialOption{dial}},
		{name: "raw path as authority", target: "unix://" + path, options: []grpc.DialOption{grpc.WithAuthority(path)}},
	}
}

func probe(w way) error {
	options := append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, w.options...)
	connection, err := grpc.NewClient(w.target, options...)
	if err != nil {
		return err
	}
	defer connection.Close()
	client := csi.NewIdentityClient(connection)
	for range callsPerWay {
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		response, err := client.Probe(ctx, &csi.ProbeRequest{})
		cancel()
		if err != nil {
			return err
		}
		if !response.GetReady().GetValue() {
			return fmt.Errorf("answered, but not ready")
		}
	}
	return nil
}
