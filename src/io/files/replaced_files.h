// Files that this process will replace, and therefore must not read.
#pragma once

#include <sys/stat.h>

#include <functional>
#include <string>

namespace tessera {

// Registers an existing regular file that this process will replace. MappedFile, read_file and read_text then
// throw the usage error `refusal(path)` for it and for links to it. If a caller catches this error,
// AtomicFile throws it again. Call it before other threads read.
void refuse_to_read(const std::string& path, std::function<std::string(const std::string& path)> refusal);

// Throws the usage error for such a file.
void check_not_replaced(const struct stat& status, const std::string& path);
// Throws the error of an earlier attempt to read the file at `path`. Otherwise unregisters the file.
void begin_replacing(const std::string& path);

}  // namespace tessera
