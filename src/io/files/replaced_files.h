// Files that this process will replace, and that it must not read.
#pragma once

#include <sys/stat.h>

#include <functional>
#include <string>

namespace tessera {

// Notes that this process will replace an existing regular file. MappedFile, read_file and read_text then throw the usage
// error `refusal(path)`, for its links as well. If such an error is caught on the way, AtomicFile throws it again. Call it
// before other threads read.
void refuse_to_read(const std::string& path, std::function<std::string(const std::string& path)> refusal);

// Throws the usage error of such a file.
void check_not_replaced(const struct stat& status, const std::string& path);
// Throws the usage error of an earlier attempt to read the file at `path`. Otherwise it is no longer such a file.
void begin_replacing(const std::string& path);

}  // namespace tessera
