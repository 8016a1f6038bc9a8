# cmake -DFILE=IN -DOUT=OUT.cpp -DNAME=NAME -P embed.cmake: writes a file's bytes as `const unsigned char
# NAME[]` and `const size_t NAME_size`.
file(READ ${FILE} bytes HEX)
string(LENGTH "${bytes}" digits)
math(EXPR size "${digits} / 2")
string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUT} "// Written by cmake/embed.cmake.\n#include <cstddef>\nextern const unsigned char ${NAME}[];\n\
extern const size_t ${NAME}_size;\nconst unsigned char ${NAME}[] = {\n${bytes}};\nconst size_t ${NAME}_size = ${size};\n")
