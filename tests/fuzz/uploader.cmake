clp_fuzzer(fuzz-chunk SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz-chunk.c USES clp_uploader
  CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/chunk)
clp_fuzzer(fuzz-upload-reply SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz-upload-reply.c USES clp_uploader
  CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/upload-reply)
clp_fuzzer(fuzz-upload-url SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz-upload-url.c USES clp_uploader
  CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/upload-url)
