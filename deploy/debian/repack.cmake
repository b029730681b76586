# CPack's package of debug symbols has md5sums with the paths of the build and no copyright. It is packed anew, the way
# debhelper does it, under the name that CPack gave it.
foreach(file ${CPACK_PACKAGE_FILES})
  if(NOT file MATCHES "\\.ddeb$")
    continue()
  endif()
  set(root ${CPACK_TOPLEVEL_DIRECTORY}/dbgsym)
  file(REMOVE_RECURSE ${root})
  execute_process(COMMAND dpkg-deb -R ${file} ${root} COMMAND_ERROR_IS_FATAL ANY)
  file(MAKE_DIRECTORY ${root}/usr/share/doc)
  file(CREATE_LINK clrpulse ${root}/usr/share/doc/clrpulse-dbgsym SYMBOLIC)
  execute_process(COMMAND sh -c
    "find usr -type f -exec chmod 644 {} + && \
     find usr -type f -exec md5sum {} + >DEBIAN/md5sums && chmod 644 DEBIAN/md5sums"
    WORKING_DIRECTORY ${root} COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND dpkg-deb --root-owner-group -b ${root} ${file} OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
endforeach()
