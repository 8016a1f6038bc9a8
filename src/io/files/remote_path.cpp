#include "io/files/remote_path.h"

#include "core/error.h"
#include "core/text.h"

namespace tessera {

void refuse_remote_path(const std::string& path) {
  const std::string shown = printable(path);
  for (const char* scheme : {"https://", "http://", "ftp://"})
    if (lower(path).starts_with(scheme))
      fail_usage("'", shown, "' is on the network, from which nothing is read: fetch it first (curl -LO ",
                 shown, ") and give the file");
  for (const char* scheme : {"hf-hub:", "hf_hub:", "hf://", "hf:"})
    if (path.starts_with(scheme)) {
      const std::string name = printable(path.substr(std::string(scheme).size()));
      fail_usage("'", shown,
                 "' is on the Hugging Face Hub, from which nothing is read: fetch it first (hf download ",
                 name, " --local-dir FOLDER) and give FOLDER/model.safetensors");
    }
  for (const char* scheme : {"s3://", "gs://"})
    if (path.starts_with(scheme))
      fail_usage("'", shown,
                 "' is in a store on the network, from which nothing is read: copy it here first");
}

}  // namespace tessera
