// Fetches a URL with net/http as it comes: the proxy variables are its default transport's affair.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
)

func main() {
	answer, cause := http.Get(os.Args[1])
	if cause == nil {
		_, cause = io.Copy(io.Discard, answer.Body)
	}
	if cause != nil {
		fmt.Println(cause)
		os.Exit(1)
	}
	fmt.Println(answer.Status)
	if answer.StatusCode != 200 {
		os.Exit(1)
	}
}
