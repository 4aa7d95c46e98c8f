SELECT certificate, key FROM link_authority
